"""Relay without one of its conditions: what a process does whose statements lack the line that a promise rests on.

`MUTANT` in the environment names an entry of `MUTANTS`; `DJANGO_SETTINGS_MODULE=tests.support.mutated_settings` has it
applied before anything else. Such a process connects as superuser and with its triggers off, so that what is missing
is not made up for by the guards in the database: it is the statement that is shown to do the work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from ledger.statements import LEDGER, Statement

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`without`: the condition, in words. `edits`: for each statement, patterns (each found once) and what takes their
    place."""

    without: str
    edits: dict[str, Edits] = field(default_factory=dict)


def _cut(statement: str, *patterns: str) -> dict[str, Edits]:
    return {statement: tuple((pattern, "") for pattern in patterns)}


_NO_CLAIM = "dispatch_owner = NULL, dispatch_epoch = NULL, dispatch_until = NULL"
_ALSO_CANCELLED = (
    r"SET status = 'cancelled', due_at = NULL, revision = operation\.revision",
    "SET status = 'cancelled', due_at = NULL, " + _NO_CLAIM + ", revision = operation.revision",
)
_ONLY_PREPARED = r"AND operation\.status = 'prepared'"

MUTANTS: dict[str, Mutant] = {
    "save: no revision": Mutant(
        "a checkpoint raises the run's revision by one",
        {"run.save_checkpoint": ((r"revision = run\.revision \+ 1, ", ""),)},
    ),
    "renew: no epoch": Mutant(
        "the term's epoch, in lease.renew", _cut("lease.renew", r" AND locked\.seen_epoch = locked\.epoch")
    ),
    "renew: no expiry": Mutant(
        "the lease's end, in lease.renew", _cut("lease.renew", r"AND locked\.expires_at > clock_timestamp\(\)")
    ),
    "save: no epoch": Mutant(
        "the term's epoch, in run.save_checkpoint",
        _cut("run.save_checkpoint", r" AND current\.seen_epoch = current\.epoch"),
    ),
    "save: no expiry": Mutant(
        "the lease's end, in run.save_checkpoint",
        _cut("run.save_checkpoint", r"AND current\.expires_at > clock_timestamp\(\)"),
    ),
    "settle: no epoch": Mutant(
        "the term's epoch, in operation.settle", _cut("operation.settle", r" AND locked\.seen_epoch = locked\.epoch")
    ),
    "settle: no expiry": Mutant(
        "the lease's end, in operation.settle",
        _cut("operation.settle", r"AND locked\.expires_at > clock_timestamp\(\)"),
    ),
    "release: no epoch": Mutant(
        "the term's epoch, in lease.release", _cut("lease.release", r" AND lease\.epoch = held\.epoch")
    ),
    "save: no expected revision": Mutant(
        "the run's expected revision, in run.save_checkpoint",
        _cut("run.save_checkpoint", r"WHEN current\.seen_revision <> current\.revision THEN 'conflict'"),
    ),
    "save: no lock": Mutant(
        "the lock of the lease's row, in run.save_checkpoint",
        _cut("run.save_checkpoint", r"ORDER BY lease\.run_id FOR NO KEY UPDATE OF lease"),
    ),
    "expire: back to prepared": Mutant(
        "a claim that ran out leaves its operation unknown, in unknown.expire_claims",
        {
            "unknown.expire_claims": (
                (
                    r"SET status = 'unknown', dispatch_owner = NULL, (.*?)due_at = NULL,\s+ambiguous = true,",
                    r"SET status = 'prepared', dispatch_owner = NULL, \1due_at = clock_timestamp(), ambiguous = false,",
                ),
                (r"SET due_at = NULL, until = NULL, unknown_since = coalesce\([^)]*\)+",
                 "SET due_at = clock_timestamp(), until = NULL, unknown_since = NULL"),
            )
        },
    ),
    "claim: another id": Mutant(
        "every attempt of an intent has the id of the intent, in operation.claim",
        {"operation.claim": ((r"operation\.step_id, operation\.effect_version,",
                              "operation.step_id, operation.attempts AS effect_version,"),)},
    ),
    "cancel: leaves what is prepared": Mutant(
        "a cancel withdraws what is prepared, in run.cancel, and a claim looks at the run, in operation.claim",
        {
            "run.cancel": ((_ONLY_PREPARED, "AND false"),),
            "operation.claim": ((r"OR locked\.run_status NOT IN \('pending', 'running'\)", ""),),
        },
    ),
    "cancel: dispatching too": Mutant(
        "a cancel leaves what is dispatching as it is, in run.cancel",
        {"run.cancel": (_ALSO_CANCELLED, (_ONLY_PREPARED, "AND operation.status IN ('prepared', 'dispatching')"))},
    ),
    "cancel: unknown too": Mutant(
        "a cancel leaves what is unknown as it is, in run.cancel",
        {"run.cancel": (_ALSO_CANCELLED, (_ONLY_PREPARED, "AND operation.status IN ('prepared', 'unknown')"))},
    ),
    "settle: any run": Mutant(
        "an operation is settled under the term of its own run, in operation.settle",
        {
            "operation.settle": (
                (r"ON operation\.operation_key = current\.operation_key AND operation\.run_id = current\.run_id",
                 "ON operation.operation_key = current.operation_key"),
            )
        },
    ),
}  # fmt: skip


def apply(name: str) -> None:
    """Take the condition out of the statements of this process. `AssertionError` when it is not there to be taken."""
    for statement, edits in MUTANTS[name].edits.items():
        text = LEDGER[statement].sql
        for pattern, replacement in edits:
            text, found = re.subn(pattern, replacement, text)
            assert found == 1, f"{pattern} is {found} times in {statement}"
        LEDGER[statement] = Statement(statement, text)
        LEDGER[statement].writes = False  # as it stands: the database has functions of the true texts only


def environment(name: str | None) -> dict[str, str]:
    """What a process needs to be that mutant; nothing when it is to be Relay as it is."""
    if name is None:
        return {}
    return {
        "MUTANT": name,
        "DJANGO_SETTINGS_MODULE": "tests.support.mutated_settings",
        "DATABASE_URL": _without_guards(),
    }


def _without_guards() -> str:
    """A superuser's DATABASE_URL to the test database, under which no trigger fires."""
    from tests.support import database  # late: it needs models, and settings import this module

    parameters = {**database.login(), "options": "-c session_replication_role=replica"}
    return f"postgresql:///?{urlencode(parameters, quote_via=quote)}"
