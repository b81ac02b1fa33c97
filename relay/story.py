"""One delivery's whole life as lines of text, in order of time."""

from __future__ import annotations

from datetime import datetime

from deliveries.api import schemas

Moment = tuple[datetime, str]


def _run(run: schemas.Run) -> list[Moment]:
    return [(run.created_at, f"run {run.run_id} made ({run.reason})")]


def _operation(operation: schemas.Operation, run_made: datetime) -> list[Moment]:
    # Both were made by one statement, whose rows each read the clock.
    moments = [(max(operation.created_at, run_made), f"operation {operation.id} prepared")]
    for attempt in operation.attempt_records:
        moments += _attempt(attempt)
    moments += [_acknowledgement(one) for one in operation.acknowledgements]
    moments += [
        (
            one.decided_at,
            f"{one.actor} moved it aside out of its line: {one.reason}"
            if one.decision == "moved_aside"
            else f"{one.actor} resolved it as {one.decision}, seeing revision {one.revision_seen}: {one.reason}",
        )
        for one in operation.resolutions
    ]
    return moments


def _attempt(attempt: schemas.Attempt) -> list[Moment]:
    began = f"attempt {attempt.number} begun by {attempt.owner} under epoch {attempt.epoch}: POST {attempt.url}"
    ended = f"attempt {attempt.number}: {attempt.verdict} ({attempt.classification})"
    if attempt.http_status is not None:
        ended += f", HTTP {attempt.http_status}"
    if attempt.error:
        ended += f"; {attempt.error}"
    if attempt.late:
        ended += " [reported after its worker had lost the lease]"
    # A lost worker told no end: that it was lost is known from when the reconciler wrote it down.
    return [(attempt.started_at, began), (attempt.ended_at or attempt.recorded_at, ended)]


def _acknowledgement(word: schemas.Acknowledgement) -> Moment:
    text = "the receiver was asked, and said" if word.source == "query" else "the receiver said"
    text += f" {word.said}"
    if word.http_status is not None:
        text += f" (HTTP {word.http_status})"
    if word.remote_id is not None:
        text += f", its id {word.remote_id}"
    return word.received_at, f"{text}; {word.detail}" if word.detail else text


def _takeover(takeover: schemas.Takeover) -> list[Moment]:
    return [
        (takeover.previous_expired_at, f"lease of {takeover.previous_owner} expired"),
        (takeover.taken_at, f"{takeover.owner} took the lease over: epoch {takeover.epoch}"),
    ]


def _fenced_write(write: schemas.FencedWrite) -> list[Moment]:
    under = "" if write.epoch is None else f" under epoch {write.epoch}"
    seen = {"owner": write.seen_owner, "epoch": write.seen_epoch, "status": write.seen_status}
    current = ", ".join(f"{name} {value}" for name, value in seen.items() if value is not None)
    text = f"fenced out: {write.statement} by {write.owner}{under} refused ({write.reason})"
    return [(write.refused_at, f"{text}; at that moment: {current}" if current else text)]


def _now(delivery: schemas.Delivery) -> list[str]:
    lines = [f"It is {delivery.status} now."]
    if delivery.holds_line:
        lines.append(
            "It is the first in its endpoint's line: what was accepted after it waits until it is settled, or "
            "moved aside in the admin or by POST /v1/deliveries/ID/move-aside."
        )
    elif delivery.in_line:
        lines.append("It stands in its endpoint's line, and is sent when it is the first there.")
    for operation in delivery.operations:
        if operation.quarantined and operation.dispatch_owner is None:
            lines.append(
                f"{operation.id} is quarantined at revision {operation.revision}: its last {operation.losses} sends "
                "each lost their worker. It is not sent again by itself. Resolve it, or send it again knowingly."
            )
        elif operation.status == "unknown" and operation.dispatch_owner is None:
            lines.append(
                f"{operation.id} is unknown at revision {operation.revision}; it will be sent again under the same id "
                f"at {_at(operation.due_at)}."
                if operation.due_at is not None
                else f"{operation.id} is unknown at revision {operation.revision} and waits for evidence or a person: "
                "resolve it in the admin, or by POST /v1/operations/ID/resolve."
            )
        elif operation.status == "prepared" and operation.due_at is not None:
            lines.append(f"{operation.id} is due at {_at(operation.due_at)}.")
    return lines


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def tell(delivery: schemas.Delivery, expunged_at: datetime | None = None) -> list[str]:
    """The lines: what it is, everything that happened, and what it waits for. `expunged_at`: of its event."""
    made = {run.run_id: run.created_at for run in delivery.runs}
    moments: list[Moment] = []
    for run in delivery.runs:
        moments += _run(run)
    for operation in delivery.operations:
        moments += _operation(operation, made.get(operation.run_id, operation.created_at))
    for takeover in delivery.takeovers:
        moments += _takeover(takeover)
    for write in delivery.fenced_writes:
        moments += _fenced_write(write)
    if expunged_at is not None:
        moments.append((expunged_at, "the content of its event, and what was answered, was removed on request"))
    # Of what happened at one moment the order above is kept: sorting is stable.
    return [
        f"delivery {delivery.id}: event {delivery.event_id} to endpoint {delivery.endpoint_id}",
        *(f"{_at(at)}  {what}" for at, what in sorted(moments, key=lambda moment: moment[0])),
        *_now(delivery),
    ]
