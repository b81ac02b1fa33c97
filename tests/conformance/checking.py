"""Compares what a transport said with what the case demands and with what the receiver has had.

`inconsistent` is what must hold for any request on any wire; `wrong` adds what the case says.
"""

from __future__ import annotations

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import BODY_KEPT, HEAD_LIMIT, Outcome, verdict_of
from tests.conformance.cases import Expect, Variant
from tests.conformance.running import Seen

MARGIN_S = 3.0  # the machine has other things to do


def wrong(variant: Variant, seen: Seen, transport: str, *, within_ms: int = 0) -> list[str]:
    """Everything that is not as it must be, as sentences; empty when all is."""
    outcome, case = seen.outcome, variant.case
    if outcome is None:
        return ["no outcome was reported"]
    found = inconsistent(seen, keeps_connections=transport != "requests")
    expected = case.expected(transport)
    if not any(_is(expect, seen, outcome) for expect in expected):
        wanted = " or ".join(f"{expect} with {expect.arrives} at the receiver" for expect in expected)
        found.append(f"{outcome.verdict} {outcome.http_status} with {seen.arrived} at the receiver, not {wanted}")
    elif outcome.verdict == ANSWERED and not any(
        _is(expect, seen, outcome) and expect.error == bool(outcome.error) for expect in expected
    ):
        found.append(f"answered, and the sentence about it is {outcome.error!r}")
    kept = case.kept(transport)
    if kept is not None and outcome.verdict == ANSWERED and outcome.body != kept:
        found.append(f"{len(outcome.body)} bytes of body were kept and are not the first that came")
    missing = [field for field in case.fields if field not in outcome.headers]
    if missing:
        found.append(f"header fields of the answer are missing: {missing}")
    limit = (within_ms or case.within_ms or seen.trial.timeout_ms) / 1000
    if max(seen.wall_s, outcome.evidence.elapsed_ms / 1000) > limit + MARGIN_S:
        found.append(f"it took {seen.wall_s:.2f} s, the limit was {limit:.2f} s")
    if case.by_deadline and seen.wall_s < limit * 0.9:
        found.append(f"it ended after {seen.wall_s:.2f} s, before its deadline of {limit:.2f} s")
    return found


def _is(expect: Expect, seen: Seen, outcome: Outcome) -> bool:
    return (outcome.verdict, outcome.http_status, seen.arrived) == (expect.verdict, expect.status, expect.arrives)


def inconsistent(seen: Seen, *, keeps_connections: bool) -> list[str]:
    """What contradicts the evidence itself, or what the receiver has had."""
    outcome, trial = seen.outcome, seen.trial
    if outcome is None:
        return ["no outcome was reported"]
    evidence = outcome.evidence
    rules = {
        "called not sent, but the receiver has the request": outcome.verdict != NOT_SENT or seen.arrived == 0,
        # A receiver may answer what it has not read to the end, though all of it was written.
        "called answered, but the receiver does not have it once": outcome.verdict != ANSWERED
        or seen.arrived == 1
        or (seen.arrived == 0 and bool(seen.statuses)),
        "a status that the receiver did not give in full": outcome.http_status in (None, *seen.statuses),
        "the receiver has it more often than it was sent": seen.arrived <= evidence.sends,
        "sent more than once": evidence.sends <= 1,
        "the body came changed": seen.sums_ok,
        "the verdict is not what the evidence proves": outcome.verdict == verdict_of(evidence, outcome.http_status),
        "answered without a complete request or head": outcome.verdict != ANSWERED
        or (evidence.request_complete and evidence.head_complete and outcome.http_status is not None),
        "not sent, but complete": outcome.verdict != NOT_SENT or not evidence.request_complete,
        "a status without a complete head": (outcome.http_status is not None) == evidence.head_complete,
        "a status that is not final": outcome.http_status is None or 200 <= outcome.http_status <= 999,
        "the body's length": evidence.body_bytes == len(trial.body),
        "more written than there is": 0 <= evidence.body_bytes_written <= evidence.body_bytes,
        "more written than offered": evidence.body_bytes_written <= evidence.bytes_offered,
        "complete without all of the body": not evidence.request_complete
        or (evidence.body_bytes_written == evidence.body_bytes and evidence.bytes_offered > evidence.body_bytes),
        "all of the body written, but not complete": evidence.request_complete
        or evidence.body_bytes_written < evidence.body_bytes,
        "offered without being sent": evidence.sends == 1 or evidence.bytes_offered == 0,
        "sent to nobody": evidence.sends == 0 or trial.to != "receiver" or evidence.peer == f"127.0.0.1 {seen.port}",
        "the peer": evidence.peer in (None, f"127.0.0.1 {seen.port}") or trial.to != "receiver",
        "aborted by nobody": not evidence.aborted,
        "the kept body is too long": len(outcome.body) <= BODY_KEPT,
        "the kept head is too long": sum(len(name) + len(value) for name, value in outcome.headers) <= HEAD_LIMIT,
        "headers of an incomplete head": evidence.head_complete or not outcome.headers,
        "no sentence about what went wrong": outcome.verdict == ANSWERED or outcome.error.endswith("."),
        "offered is not what the receiver has": outcome.verdict != ANSWERED
        or seen.arrived != 1
        or evidence.bytes_offered == len(seen.heads[-1]) + len(trial.body),
        "an Expect header was sent": not any(b"\nexpect:" in head.lower() for head in seen.heads),
        "a header was injected": not any(b"\ninjected:" in head.lower() for head in seen.heads),
        # Beneath TLS a write that failed half way may have put records on the wire that are not counted as written.
        "the receiver has more of the body than was written": trial.scheme == "tls"
        or seen.body_bytes <= evidence.body_bytes_written,
    }
    found = [sentence for sentence, holds in rules.items() if not holds]
    if trial.on == "reused":
        found += _reuse(seen, outcome, keeps_connections=keeps_connections)
    elif evidence.reused:  # it may be resubmitted: the port may have been another receiver's, which left a dead one
        found.append("the first request on a connection is said to be a later one")
    if found:
        found.append(f"[{outcome.error} {evidence} arrived={seen.arrived} bodies={seen.body_bytes}]")
    return found


def _reuse(seen: Seen, outcome: Outcome, *, keeps_connections: bool) -> list[str]:
    if seen.warm is None or (seen.warm.verdict, seen.warm.http_status) != (ANSWERED, 200):
        return [f"the request before it was not answered: {seen.warm}"]
    evidence = outcome.evidence
    if not keeps_connections:
        return ["a connection was used twice"] if evidence.reused or evidence.resubmitted else []
    if not evidence.sends or evidence.reused != evidence.resubmitted:
        return []
    if not (evidence.reused or seen.trial.script[0].waits):
        return []  # the connection was not left alone, which the library may notice by itself
    return ["the open connection was neither used nor found dead" if not evidence.reused else "reused and resubmitted"]


def is_safe(seen: Seen) -> bool:
    """True when nothing that was said of the request can mislead whoever acts on it."""
    outcome = seen.outcome
    allowed = {ANSWERED: {1}, NOT_SENT: {0}, UNKNOWN: {0, 1}}
    return outcome is not None and seen.arrived in allowed[outcome.verdict] and seen.arrived <= outcome.evidence.sends
