"""For every kind of breach the SQL that makes it, and nothing else but what it cannot do without."""

from __future__ import annotations

from dataclasses import dataclass, field

OPERATION = "UPDATE ledger_operation SET {} WHERE operation_key = %(operation_key)s"
RUN = "UPDATE ledger_run SET {} WHERE run_id = %(run_id)s"
LEASE = "UPDATE ledger_lease SET {} WHERE run_id = %(run_id)s"
POINTER = "UPDATE ledger_dispatch SET {} WHERE operation_key = %(operation_key)s"
ATTEMPT = "UPDATE deliveries_attempt SET {} WHERE operation_key = %(operation_key)s AND number = 1"
FORGET = "DELETE FROM deliveries_attempt WHERE operation_key = %(operation_key)s"
TASK = "UPDATE ledger_task SET {} WHERE task_id = %(task_id)s"
LONG_AGO = "clock_timestamp() - interval '1 day'"
NOBODY = "'00000000-0000-7000-8000-000000000001'"


@dataclass(frozen=True, slots=True)
class Planting:
    """`of`: the type of the delivery in whose rows it is planted. `also`: the kinds that follow from it."""

    of: str
    sql: str
    also: frozenset[str] = field(default=frozenset())


def _also(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


_ATTEMPT_COPY = """
INSERT INTO deliveries_attempt (operation_key, number, epoch, owner, url, started_at, ended_at, verdict, classification,
                                error)
SELECT {key}, {number}, {epoch}, owner, url, started_at, ended_at, verdict, classification, ''
FROM deliveries_attempt WHERE operation_key = %(operation_key)s AND number = 1
"""
_OTHER_RUN = """
WITH other AS (
    INSERT INTO ledger_run (task_id, status, reason, created_at)
    VALUES (%(task_id)s, '{status}', 'replay', clock_timestamp() + {age} * interval '1 hour') RETURNING run_id
), leased AS (INSERT INTO ledger_lease (run_id) SELECT run_id FROM other)
INSERT INTO ledger_operation (run_id, step_id, tool, request_digest, request_ref, status)
SELECT other.run_id, 'deliver', 'webhook', operation.request_digest, operation.request_ref, 'cancelled'
FROM other, ledger_operation AS operation WHERE operation.operation_key = %(operation_key)s
"""
_TAKEOVER = """
INSERT INTO ledger_takeover (run_id, epoch, owner, previous_owner, previous_expired_at)
VALUES ({run}, {epoch}, 'a', 'b', clock_timestamp())
"""
_RESOLUTION = """
INSERT INTO ledger_resolution (operation_key, actor, decision, reason, revision_seen)
VALUES (%(operation_key)s, 'somebody', '{decision}', '{reason}', {seen})
"""

PLANTINGS: dict[str, Planting] = {
    "active_run": Planting("waiting", TASK.format(f"active_run_id = {NOBODY}")),
    "active_run_newest": Planting("refused", _OTHER_RUN.format(status="cancelled", age=1)),
    "one_open_run": Planting("waiting", _OTHER_RUN.format(status="running", age=-1)),
    "run_row": Planting("waiting", RUN.format("reason = 'whim'")),
    "run_task": Planting("waiting", "DELETE FROM ledger_task WHERE task_id = %(task_id)s", _also("event_deliveries")),
    "run_lease": Planting("waiting", "DELETE FROM ledger_lease WHERE run_id = %(run_id)s"),
    "run_operation": Planting("cancelled", "DELETE FROM ledger_operation WHERE operation_key = %(operation_key)s"),
    "run_succeeded": Planting("unknown", RUN.format("status = 'succeeded'")),
    "run_failed": Planting("unknown", RUN.format("status = 'failed'")),
    "run_cancelled": Planting("retried", RUN.format("status = 'cancelled'")),
    "run_pending": Planting("retried", RUN.format("status = 'pending'")),
    "run_left_behind": Planting(
        "refused",
        RUN.format("status = 'running'") + "; " + OPERATION.format(f"updated_at = {LONG_AGO}"),
    ),
    "lease_row": Planting("refused", LEASE.format("owner = ''")),
    "lease_of_the_ended": Planting("refused", LEASE.format(f"owner = 'a', expires_at = {LONG_AGO}")),
    "epoch_fell": Planting("in_flight", LEASE.format("epoch = 0")),
    "operation_row": Planting("unknown", OPERATION.format("losses = -1")),
    "operation_run": Planting("cancelled", OPERATION.format(f"run_id = {NOBODY}"), _also("run_operation")),
    "operation_intent": Planting(
        "unknown",
        """
        INSERT INTO ledger_operation (run_id, step_id, effect_version, tool, request_digest, request_ref, status)
        SELECT run_id, step_id, effect_version, tool, request_digest, request_ref, 'cancelled'
        FROM ledger_operation WHERE operation_key = %(operation_key)s
        """,
    ),
    "prepared": Planting("retried", OPERATION.format("ambiguous = true")),
    "unknown": Planting("unknown", OPERATION.format("ambiguous = false")),
    "claim_whole": Planting("in_flight", OPERATION.format("dispatched_at = NULL")),
    "claim_lease": Planting("in_flight", LEASE.format("owner = 'somebody else'")),
    "claim_overdue": Planting(
        "in_flight",
        OPERATION.format(f"dispatch_until = {LONG_AGO}") + "; " + LEASE.format(f"expires_at = {LONG_AGO}"),
    ),
    "ended_without_attempt": Planting(
        "resolved",
        "; ".join((OPERATION.format("attempts = 0"), FORGET)),
    ),
    "queue_row_missing": Planting("waiting", "DELETE FROM ledger_dispatch WHERE operation_key = %(operation_key)s"),
    "queue_row_subject": Planting("waiting", POINTER.format(f"endpoint_id = {NOBODY}")),
    "queue_row_claim": Planting("in_flight", POINTER.format("until = NULL")),
    "queue_row_unknown": Planting("unknown", POINTER.format("unknown_since = NULL")),
    "queue_row_line": Planting("waiting", POINTER.format("in_line = true")),
    "line_overtaken": Planting(
        "in_flight",
        "; ".join(
            (
                POINTER.format("in_line = true"),
                TASK.format("in_line = true"),
                # What was accepted before it, to another endpoint, is made to stand before it.
                """
                UPDATE ledger_dispatch
                SET in_line = true, endpoint_id = (SELECT endpoint_id FROM ledger_task WHERE task_id = %(task_id)s)
                WHERE operation_key = (SELECT min(operation_key) FROM ledger_dispatch)
                """,
            )
        ),
        _also("queue_row_line", "queue_row_subject"),
    ),
    "queue_row_due": Planting("waiting", POINTER.format("due_at = clock_timestamp()")),
    "queue_row_left_over": Planting(
        "refused",
        """
        INSERT INTO ledger_dispatch (operation_key, run_id, tenant_id, endpoint_id)
        SELECT %(operation_key)s, %(run_id)s, tenant_id, endpoint_id FROM ledger_task WHERE task_id = %(task_id)s
        """,
    ),
    "takeover_run": Planting("refused", _TAKEOVER.format(run=NOBODY, epoch=1)),
    "takeover_order": Planting("lost", _TAKEOVER.format(run="%(run_id)s", epoch=1)),
    "fenced_write_subject": Planting(
        "refused",
        f"INSERT INTO ledger_fenced_write (statement, reason, run_id, owner) VALUES ('a', 'b', {NOBODY}, 'c')",  # noqa: S608 - our own names
    ),
    "resolution_row": Planting("unknown", _RESOLUTION.format(decision="retry", reason="", seen=0)),
    "resolution_followed": Planting("unknown", _RESOLUTION.format(decision="failed", reason="x", seen=0)),
    "event_deliveries": Planting("waiting", "UPDATE deliveries_event SET deliveries = 2 WHERE event_id = %(event_id)s"),
    "event_idempotency": Planting("waiting", "UPDATE deliveries_event SET idempotency_key = 'the same'"),
    "event_expunged": Planting("expunged", "UPDATE deliveries_event SET payload = '1' WHERE event_id = %(event_id)s"),
    "answer_expunged": Planting("expunged", ATTEMPT.format("response_body = 'x'")),
    "word_expunged": Planting(
        "expunged",
        "INSERT INTO deliveries_acknowledgement (operation_key, run_id, source, said, covers, actor, detail) "
        "VALUES (%(operation_key)s, %(run_id)s, 'query', 'unknown', 0, 'a', 'words')",
    ),
    "delivery_event": Planting(
        "waiting", "DELETE FROM deliveries_event WHERE event_id = %(event_id)s", _also("content")
    ),
    "delivery_endpoint": Planting(
        "waiting",
        "DELETE FROM deliveries_endpoint WHERE endpoint_id = "
        "(SELECT endpoint_id FROM ledger_task WHERE task_id = %(task_id)s)",
    ),
    "delivery_tenant": Planting(
        "waiting", "UPDATE deliveries_event SET tenant_id = 'another' WHERE event_id = %(event_id)s"
    ),
    "attempts_gapless": Planting("retried", FORGET),
    "attempts_begun": Planting("delivered", _ATTEMPT_COPY.format(key="%(operation_key)s", number=2, epoch=1)),
    "attempts_once": Planting("delivered", _ATTEMPT_COPY.format(key="%(operation_key)s", number=1, epoch=1)),
    "attempt_epoch": Planting("delivered", ATTEMPT.format("epoch = 99")),
    "attempt_epochs_rise": Planting(
        "delivered",
        _ATTEMPT_COPY.format(key="%(operation_key)s", number=2, epoch=0) + "; " + OPERATION.format("attempts = 2"),
    ),
    "succeeded_proof": Planting("delivered", ATTEMPT.format("classification = 'rejected'")),
    "failed_proof": Planting("refused", ATTEMPT.format("classification = 'server_error'")),
    "failed_though_taken": Planting("refused", ATTEMPT.format("classification = 'accepted'"), _also("failed_proof")),
    "doubt_forgotten": Planting("retried", ATTEMPT.format("classification = 'unknown'")),
    "unknown_reason": Planting("unknown", ATTEMPT.format("classification = 'not_sent'")),
    "content": Planting("waiting", OPERATION.format(f"request_ref = {NOBODY}")),
    "content_digest": Planting("waiting", OPERATION.format("request_digest = '\\x00'")),
    "attempt_operation": Planting("delivered", _ATTEMPT_COPY.format(key=0, number=1, epoch=1)),
    "attempt_row": Planting("delivered", ATTEMPT.format("verdict = 'whim'")),
    "acknowledgement_operation": Planting(
        "acknowledged",
        "INSERT INTO deliveries_acknowledgement (operation_key, run_id, source, said, covers, actor, detail) "
        "VALUES (0, %(run_id)s, 'query', 'unknown', 0, 'a', '')",
    ),
}
