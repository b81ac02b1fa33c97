"""Claims: how they are taken, what becomes of one that runs out, and same-key retries of what is unknown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.managers import lease, operation, unknown
from ledger.managers.unknown import Retry
from ledger.outcome import Applied, Reason
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import HOUR_MS, MINUTE_MS, OWNER, RIVAL, TTL_MS, Planted

pytestmark = pytest.mark.django_db


def claim(*planted: Planted, owner: str = OWNER) -> tuple[list[operation.Claimed], dict[int, Reason]]:
    return operation.claim([one.operation_key for one in planted], owner=owner, ttl_ms=TTL_MS)


def test_a_claim_puts_owner_epoch_revision_and_attempt_on_record_in_one_write() -> None:
    planted = rows.plant("prepared")
    before = rows.operation(planted)
    (claimed,), refused = claim(planted)
    seen, held, of, pointer = rows.operation(planted), rows.lease(planted), rows.run(planted), rows.queued(planted)
    assert refused == {}
    assert (seen["status"], seen["dispatch_owner"], seen["attempts"]) == ("dispatching", OWNER, 1)
    assert seen["revision"] == before["revision"] + 1 == claimed.revision
    assert (held["owner"], held["epoch"]) == (OWNER, 1)
    assert (claimed.epoch, claimed.run_revision, claimed.attempts) == (1, of["revision"], 1)
    assert (of["status"], of["revision"]) == ("running", 3)
    assert pointer is not None
    assert held["expires_at"] == seen["dispatch_until"] == pointer["until"] == claimed.expires_at
    assert seen["first_dispatched_at"] == claimed.first_dispatched_at
    assert rows.claim_of(planted) == claimed


def test_a_later_claim_of_a_running_run_does_not_write_the_run() -> None:
    planted = rows.plant("prepared", run_status="running", attempts=1)
    before = rows.run(planted)
    (claimed,), _ = claim(planted)
    assert rows.run(planted) == before
    assert claimed.run_revision == before["revision"]
    assert claimed.first_dispatched_at < claimed.dispatched_at


def test_a_claim_of_an_unknown_operation_does_not_pretend_that_it_is_no_longer_unknown() -> None:
    planted = rows.plant("unknown", due_ms=-1000, retry_until_ms=HOUR_MS)
    (claimed,), _ = claim(planted)
    seen, pointer = rows.operation(planted), rows.queued(planted)
    assert (seen["status"], claimed.status, claimed.ambiguous, claimed.attempts) == ("unknown", "unknown", True, 2)
    assert pointer is not None
    assert pointer["unknown_since"] is not None


def test_an_operation_that_is_not_due_is_in_no_answer() -> None:
    later, person, held = rows.plant("prepared", due_ms=MINUTE_MS), rows.plant("unknown"), rows.plant("dispatching")
    before = rows.everything()
    assert claim(later, person, held) == ([], {})
    assert rows.everything() == before


def test_a_claim_that_finds_a_live_lease_is_parked_until_that_lease_ends() -> None:
    planted = rows.plant("prepared", run_status="running", owner=RIVAL)
    assert claim(planted) == ([], {planted.operation_key: Reason.LEASE_HELD})
    pointer, held = rows.queued(planted), rows.lease(planted)
    assert pointer is not None
    assert pointer["due_at"] == held["expires_at"]
    assert claim(planted) == ([], {}), "until then nobody asks again"
    rows.expire_lease(planted)
    rows.change("ledger_dispatch", {"operation_key": planted.operation_key}, due_at=rows.lease(planted)["expires_at"])
    (claimed,), _ = claim(planted)
    assert claimed.epoch == held["epoch"] + 1
    (takeover,) = rows.rows("ledger_takeover")
    assert (takeover["owner"], takeover["previous_owner"]) == (OWNER, RIVAL)


@pytest.mark.parametrize(
    ("status", "columns", "reason"),
    [
        ("unknown", {"due_ms": -1000, "retry_until_ms": -1}, Reason.WINDOW_OVER),
        ("unknown", {"due_ms": -1000, "run_status": "cancelled"}, Reason.WRONG_STATUS),
        ("prepared", {"run_status": "cancelled"}, Reason.WRONG_STATUS),
        ("prepared", {"run_status": "failed"}, Reason.WRONG_STATUS),
    ],
)
def test_a_pointer_that_was_wrong_waits_for_the_reconciler(
    status: str, columns: dict[str, int | str], reason: Reason
) -> None:
    planted = rows.plant(status, **columns)  # type: ignore[arg-type]
    before = rows.everything(but=("ledger_dispatch",))
    assert claim(planted) == ([], {planted.operation_key: reason})
    assert rows.everything(but=("ledger_dispatch",)) == before
    pointer = rows.queued(planted)
    assert pointer is not None
    assert pointer["due_at"] is None


def test_a_persons_retry_has_no_window() -> None:
    planted = rows.plant("unknown", due_ms=-1000, first_ms=-100 * HOUR_MS)
    (claimed,), _ = claim(planted)
    assert claimed.attempts == 2


@pytest.mark.parametrize("ttl_ms", [0, -1, lease.MAX_TTL_MS + 1, True, 1.5])
def test_a_lease_has_a_length_that_means_something(ttl_ms: int) -> None:
    planted = rows.plant("prepared")
    with pytest.raises(ValueError, match="TTL"):
        operation.claim([planted.operation_key], owner=OWNER, ttl_ms=ttl_ms)
    with pytest.raises(ValueError, match="TTL"):
        lease.acquire([planted.run_id], owner=OWNER, ttl_ms=ttl_ms)


@pytest.mark.parametrize("status", ["dispatching", "unknown"])
def test_a_claim_that_ran_out_leaves_its_operation_unknown_never_prepared_and_its_owner_fenced_out(status: str) -> None:
    planted = rows.plant(status, owner=OWNER, claimed_by=OWNER, lease_ms=-1000, until_ms=-1000)
    before, held = rows.operation(planted), rows.lease(planted)
    (expired,) = unknown.expire_claims(batch=10, owner="reconciler")
    seen, after, pointer = rows.operation(planted), rows.lease(planted), rows.queued(planted)
    assert (seen["status"], seen["ambiguous"], seen["due_at"]) == ("unknown", True, None)
    assert (seen["dispatch_owner"], seen["dispatch_until"]) == (None, None)
    assert seen["revision"] == before["revision"] + 1 == expired.revision
    assert seen["attempts"] == before["attempts"], "nobody can say that it was not sent"
    assert (after["owner"], after["epoch"]) == (None, held["epoch"] + 1)
    assert (expired.lost_owner, expired.lost_epoch) == (OWNER, held["epoch"])
    (takeover,) = rows.rows("ledger_takeover")
    assert (takeover["epoch"], takeover["owner"], takeover["previous_owner"]) == (
        held["epoch"] + 1,
        "reconciler",
        OWNER,
    )
    assert takeover["previous_expired_at"] == held["expires_at"]
    assert pointer is not None
    assert (pointer["due_at"], pointer["until"]) == (None, None)
    assert pointer["unknown_since"] is not None
    assert rows.run(planted)["status"] == "running"


def test_a_claim_whose_owner_renews_does_not_run_out() -> None:
    planted = rows.plant("dispatching", until_ms=-1000)
    before = rows.operation(planted)
    assert unknown.expire_claims(batch=10, owner="reconciler") == []
    assert rows.operation(planted) == before


def test_renewed_claims_do_not_hide_those_that_ran_out_behind_them() -> None:
    for _ in range(3):
        rows.plant("dispatching", until_ms=-5000)
    abandoned = rows.plant("dispatching", lease_ms=-1000, until_ms=-1000)
    found = []
    for _ in range(3):
        found += unknown.expire_claims(batch=2, owner="reconciler")
    assert [one.operation_key for one in found] == [abandoned.operation_key]


def test_a_claim_whose_lease_was_given_back_runs_out_at_its_own_end() -> None:
    planted = rows.plant("dispatching", until_ms=MINUTE_MS)
    term = rows.term_of(planted)
    assert isinstance(lease.release([(planted.run_id, term.epoch)], owner=OWNER)[planted.run_id], Applied)
    assert unknown.expire_claims(batch=10, owner="reconciler") == []
    rows.change("ledger_operation", {"operation_key": planted.operation_key}, dispatch_until=rows.from_now(-1))
    rows.change("ledger_dispatch", {"operation_key": planted.operation_key}, until=rows.from_now(-1))
    assert len(unknown.expire_claims(batch=10, owner="reconciler")) == 1
    assert rows.rows("ledger_takeover") == [], "nobody was displaced"


def retry(
    planted: Planted, *, revision: int | None = None, retry_ms: int | None = 1000, window_ms: int = HOUR_MS,
    losses_below: int = 3,
) -> bool:  # fmt: skip
    wish = Retry(
        planted.operation_key,
        rows.operation(planted)["revision"] if revision is None else revision,
        retry_ms,
        window_ms,
    )
    return bool(unknown.schedule_retry([wish], losses_below=losses_below))


def test_an_unknown_operation_is_scheduled_inside_its_receivers_window() -> None:
    planted = rows.plant("unknown")
    before = rows.operation(planted)
    assert retry(planted, retry_ms=1000)
    seen, pointer = rows.operation(planted), rows.queued(planted)
    assert seen["revision"] == before["revision"] + 1
    assert seen["status"] == "unknown"
    assert seen["retry_until"] == seen["first_dispatched_at"] + timedelta(milliseconds=HOUR_MS)
    assert pointer is not None
    assert pointer["due_at"] == seen["due_at"]


@pytest.mark.parametrize(
    ("columns", "wish"),
    [
        ({"status": "unknown", "first_ms": -HOUR_MS}, {"window_ms": HOUR_MS}),
        ({"status": "unknown", "first_ms": -HOUR_MS + 500}, {"window_ms": HOUR_MS, "retry_ms": 1000}),
        ({"status": "unknown"}, {"revision": 3}),
        ({"status": "unknown", "run_status": "cancelled"}, {}),
        ({"status": "unknown", "owner": OWNER, "claimed_by": OWNER}, {}),
        ({"status": "prepared"}, {}),
        ({"status": "dispatching"}, {}),
        ({"status": "succeeded"}, {}),
    ],
    ids=[
        "window over",
        "due after the window",
        "revision",
        "cancelled",
        "claimed",
        "prepared",
        "dispatching",
        "settled",
    ],
)
def test_what_may_not_be_sent_again_is_not_scheduled(columns: dict[str, object], wish: dict[str, int]) -> None:
    planted = rows.plant(**columns)  # type: ignore[arg-type]
    before = rows.everything()
    assert not retry(planted, **wish)
    assert rows.everything() == before
