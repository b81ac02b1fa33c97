"""The database's own guard: what no UPDATE or INSERT may do to a ledger row, whatever SQL tried it.

Belt and braces under the named statements. Each guard is an AFTER row trigger that is named after its rule and whose
WHEN clause is the violation: a row that keeps the rule costs a comparison and no call. AFTER and not BEFORE, because a
BEFORE trigger locks the row first and does not see what a later trigger makes of it; without `OF column`, because that
looks at what the statement names and not at what changes.

A refusal has the SQLSTATE `REFUSED` (`django.db.IntegrityError`), the rule as its constraint name, and a sentence.

The legal moves are read from `states.py`; nothing of them is kept here by hand. What is installed is frozen in
migrations: `python -m ledger.guards` prints the SQL of a new one, and a test compares the two.

Limits: a guard sees one row before and after, and neither the lease nor who asks. It refuses what can never be right;
fences are in the statements. Deleting is a matter of rights. A superuser can switch triggers off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from ledger.states import OPERATION_MOVES, RUN_MOVES, Move, OperationStatus, RunStatus

REFUSED = "23R01"
"""Integrity errors (class 23) of ours."""

FUNCTION = f"""\
CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% of % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
    USING ERRCODE = '{REFUSED}', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END $$;
REVOKE EXECUTE ON FUNCTION ledger_refuse() FROM PUBLIC;
"""


@dataclass(frozen=True, slots=True)
class Guard:
    """One rule: `violation` is SQL over OLD and NEW (None: always), `sentence` says what is right."""

    rule: str
    table: str
    event: str
    violation: str | None
    sentence: str

    @property
    def sql(self) -> str:
        """The trigger."""
        when = f"\nWHEN ({self.violation})" if self.violation else ""
        sentence = self.sentence.replace("'", "''")
        return (
            f"CREATE OR REPLACE TRIGGER {self.rule} AFTER {self.event} ON {self.table} FOR EACH ROW{when}\n"
            f"EXECUTE FUNCTION ledger_refuse('{sentence}');\n"
        )


def identity(name: str, table: str, *columns: str) -> Guard:
    """Columns that say which row it is and what it is about: written once."""
    old, new = (", ".join(f"{row}.{column}" for column in columns) for row in ("OLD", "NEW"))
    violation = f"({new}) IS DISTINCT FROM ({old})" if len(columns) > 1 else f"{new} IS DISTINCT FROM {old}"
    return Guard(f"{name}_identity_kept", table, "UPDATE", violation, f"no longer to be changed: {', '.join(columns)}")


def append_only(name: str, table: str, *, kept: tuple[str, ...] = (), but: str = "") -> Guard:
    """A record: no row of it is ever changed; `but` for one way, which leaves the columns `kept` as they are."""
    if not but:
        return Guard(f"{name}_append_only", table, "UPDATE", None, "what is on record is never changed")
    old, new = (", ".join(f"{row}.{column}" for column in kept) for row in ("OLD", "NEW"))
    violation = f"({new}) IS DISTINCT FROM ({old}) OR ({but}) IS NOT TRUE"
    sentence = "what is on record is never changed, but for its content being removed"
    return Guard(f"{name}_append_only", table, "UPDATE", violation, sentence)


def revision(name: str, table: str) -> Guard:
    """Whoever writes says which revision he saw, and so hears of it when it is no longer that one."""
    violation = "NEW.revision <> OLD.revision + 1"
    return Guard(f"{name}_revision_by_one", table, "UPDATE", violation, "each write raises the revision by one")


def _literals(values: Iterable[str]) -> str:
    return ", ".join(f"'{value!s}'" for value in values)


def _legal(moves: Iterable[Move]) -> str:
    """SQL that is true for exactly these pairs of statuses."""
    targets: dict[str, list[str]] = {}
    for move in moves:
        known = targets.setdefault(move.source, [])
        if move.target not in known:
            known.append(move.target)
    cases = "".join(
        f" WHEN '{source!s}' THEN NEW.status IN ({_literals(found)})" for source, found in sorted(targets.items())
    )
    return f"CASE OLD.status{cases} ELSE false END"


CLAIMS = frozenset({"operation.claim"})
"""The statements that begin a claim."""
ENDS_CLAIM = frozenset({"operation.settle", "unknown.expire_claims"})
"""The statements that end one. Every other finds the operation unclaimed and leaves it so."""


def _legal_operation() -> str:
    """True for a move by a statement that may make it in the face of a claim, or of none."""
    claiming = [move for move in OPERATION_MOVES if move.statement in CLAIMS]
    ending = [move for move in OPERATION_MOVES if move.statement in ENDS_CLAIM]
    others = [move for move in OPERATION_MOVES if move.statement not in CLAIMS | ENDS_CLAIM]
    return (
        "CASE WHEN OLD.dispatch_owner IS NULL AND NEW.dispatch_owner IS NOT NULL\n"
        f"     THEN {_legal(claiming)}\n"
        "     WHEN OLD.dispatch_owner IS NOT NULL AND NEW.dispatch_owner IS NULL\n"
        f"     THEN {_legal(ending)}\n"
        "     WHEN OLD.dispatch_owner IS NULL\n"
        f"     THEN {_legal(others)}\n"
        "     ELSE false END"
    )


def _forgetting() -> str:
    """True for the moves that may forget that an attempt was ambiguous: an authoritative answer says it never arrived.

    No claim's owner makes one of them, and no clock.
    """
    moves = [
        move
        for move in OPERATION_MOVES
        if (move.source, move.target) == (OperationStatus.UNKNOWN, OperationStatus.PREPARED)
        and move.statement not in CLAIMS | ENDS_CLAIM
    ]
    return _legal(moves)


GUARDS: tuple[Guard, ...] = (
    identity("task", "ledger_task", "task_id", "tenant_id", "event_id", "endpoint_id", "created_at"),
    Guard(
        "task_stays_out_of_line", "ledger_task", "UPDATE", "NEW.in_line AND NOT OLD.in_line",
        "a task that left its line does not come back into it",
    ),
    Guard(
        "task_stays_closed", "ledger_task", "UPDATE",
        "OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at",
        "a task that is closed stays closed",
    ),
    identity("run", "ledger_run", "run_id", "task_id", "reason", "created_at"),
    revision("run", "ledger_run"),
    Guard("run_legal_move", "ledger_run", "UPDATE", f"NOT {_legal(RUN_MOVES)}", "there is no such move of a run"),
    Guard(
        "run_born_pending", "ledger_run", "INSERT",
        f"NEW.status <> '{RunStatus.PENDING!s}' OR NEW.revision <> 0",
        "a run begins pending, at revision 0",
    ),
    identity("lease", "ledger_lease", "run_id"),
    Guard("lease_epoch_never_falls", "ledger_lease", "UPDATE", "NEW.epoch < OLD.epoch", "an epoch never falls"),
    Guard(
        "lease_owner_needs_epoch", "ledger_lease", "UPDATE",
        "NEW.owner IS NOT NULL AND NEW.owner IS DISTINCT FROM OLD.owner AND NEW.epoch <= OLD.epoch",
        "a new owner begins a new epoch",
    ),
    Guard(
        "lease_born_free", "ledger_lease", "INSERT", "NEW.epoch <> 0 OR NEW.owner IS NOT NULL",
        "a lease begins without an owner, at epoch 0",
    ),
    identity(
        "operation", "ledger_operation", "operation_key", "run_id", "step_id", "effect_version", "tool",
        "request_digest", "request_ref", "created_at",
    ),
    revision("operation", "ledger_operation"),
    Guard(
        "operation_legal_move", "ledger_operation", "UPDATE", f"NOT {_legal_operation()}",
        "there is no such move of an operation, or not while it is claimed, or not while it is not",
    ),
    Guard(
        "operation_attempts_count_claims", "ledger_operation", "UPDATE",
        "CASE WHEN OLD.dispatch_owner IS NULL AND NEW.dispatch_owner IS NOT NULL\n"
        "     THEN NEW.attempts <> OLD.attempts + 1\n"
        "     WHEN OLD.dispatch_owner IS NOT NULL AND NEW.dispatch_owner IS NULL\n"
        "     THEN NEW.attempts NOT IN (OLD.attempts, OLD.attempts - 1)\n"
        "     ELSE NEW.attempts <> OLD.attempts END",
        "a claim counts one attempt, and only a claim that is given back unsent takes its one back",
    ),
    Guard(
        "operation_ambiguity_kept", "ledger_operation", "UPDATE",
        f"OLD.ambiguous AND NOT NEW.ambiguous AND NOT {_forgetting()}",
        "only an authoritative answer that it never arrived forgets an ambiguous attempt",
    ),
    Guard(
        "operation_born_prepared", "ledger_operation", "INSERT",
        f"NEW.status <> '{OperationStatus.PREPARED!s}' OR NEW.revision <> 0 OR NEW.attempts <> 0 OR NEW.ambiguous\n"
        "OR NEW.dispatch_owner IS NOT NULL",
        "an operation begins prepared, at revision 0, without an attempt",
    ),
    append_only("takeover", "ledger_takeover"),
    append_only(
        "fenced_write", "ledger_fenced_write",
        kept=(
            "fenced_write_id", "statement", "reason", "run_id", "operation_key", "owner", "epoch", "revision",
            "seen_owner", "seen_epoch", "seen_revision", "seen_status", "seen_expires_at", "refused_at",
        ),
        but="jsonb_exists_any(OLD.evidence, '{response_headers,error}')"
        " AND NEW.evidence = OLD.evidence - '{response_headers,error}'::text[]",
    ),
    append_only("resolution", "ledger_resolution"),
)  # fmt: skip


def sql(guards: Iterable[Guard]) -> str:
    """The triggers, for the text of a migration. A rule that is given up is dropped there by hand."""
    return "".join(guard.sql for guard in guards)


if __name__ == "__main__":
    sys.stdout.write(FUNCTION + sql(GUARDS))
