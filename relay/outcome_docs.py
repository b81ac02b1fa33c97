"""Writes `docs/outcomes.md` from `deliveries/outcomes.py`: `python -m relay.outcome_docs > docs/outcomes.md`."""

from __future__ import annotations

import sys

from deliveries.outcomes import ANSWERED, EVERY_ROW, NOT_SENT, Effect, Row

HEAD = """# What an answer leads to

Made from `deliveries/outcomes.py` by `python -m relay.outcome_docs > docs/outcomes.md`; a test compares the two.

The **verdict** of an attempt is decided by what was seen on the wire, never by the kind of error:

- *answered*: a complete final status line and header block came, after the whole request had been written. The body
  plays no part.
- *not sent*: proven that the receiver cannot hold a complete request: nothing was offered to the socket, or the body
  was not completely written.
- *unknown*: everything else. A timeout, a closed connection, a head cut short, a 2xx before the request was complete.

| verdict | status | called | proves | then |
|---|---|---|---|---|
"""
FOOT = """
An attempt whose worker was lost before it could say has none of these: the reconciler records it as *unknown*, called
`worker_lost`, and its operation is treated as one that *may have been taken*. Should that worker still report, what it
saw is kept with the attempt, marked late.

*Not taken* is tried again by the endpoint's schedule (default: after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h, each
moved by up to 20 %), and fails when no tries are left. *May have been taken* leaves the operation **unknown**: an
endpoint that drops duplicates gets it again, by the same schedule, under the same ids, inside its window; for any other
it waits for evidence or a person. Once one attempt may have been taken, a refusal of a later one does not prove that it
was not: by itself such an operation fails only when it turns out that *every* attempt ever begun was not taken, because
workers that had been lost report so late.

A receiver may say more in the response header `webhook-delivery`, whatever its status: `abort-message`, that this event
is not to be tried again (it means nothing beside a 2xx); `disable`, that nothing is to be sent to the endpoint any more
until somebody enables it. Both may stand there with a comma between. An early answer, before the request was complete,
is heard too.

Attempts called `not_sent`, `unknown`, `server_error` or `rejected_transient` tell that the receiver is sick, and count
for the endpoint's **breaker**. What waits for a breaker or a rate limit stays prepared and spends no attempt.
"""
PROVES = {
    Effect.ACCEPTED: "taken",
    Effect.NOT_TAKEN: "not taken",
    Effect.AMBIGUOUS: "may have been taken",
    Effect.FINAL: "not taken, for good",
}


def _status(row: Row) -> str:
    if row.status_shown:
        return row.status_shown
    if row.verdict != ANSWERED:
        return "any or none" if row.verdict == NOT_SENT else "none"
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in row.ranges)


def render() -> str:
    """The whole document."""
    rows = (
        f"| {row.verdict.replace('_', ' ')} | {_status(row)} | `{row.classification}` | {PROVES[row.effect]} "
        f"| {row.meaning} |\n"
        for row in EVERY_ROW
    )
    return HEAD + "".join(rows) + FOOT


if __name__ == "__main__":
    sys.stdout.write(render())
