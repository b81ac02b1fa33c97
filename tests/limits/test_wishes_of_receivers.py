"""What receivers ask for beside their status, and what endpoints say of 409: heard by the engine's settling."""

from __future__ import annotations

import pytest

from deliveries import reconcile
from deliveries.health import Watch
from deliveries.models import Attempt, Endpoint
from deliveries.outcomes import NOT_SENT, Effect, judge
from deliveries.transport.base import Headers
from tests.limits.hands import accepted, change_operation, claimed, endpoint, make_due, settle
from tests.support.deliveries import Watched

pytestmark = pytest.mark.django_db

ABORT: Headers = (("Webhook-Delivery", "abort-message"),)
DISABLE: Headers = (("webhook-delivery", "Disable"),)
BOTH: Headers = (("content-type", "text/plain"), ("webhook-delivery", "disable , abort-message"))


def answered(to: Endpoint, status: int | None, headers: Headers) -> Watched:
    (one,) = accepted(to)
    settle(claimed(), status, headers, watch=Watch())
    return one


def enabled(of: Endpoint) -> bool:
    return Endpoint.objects.get(pk=of.pk).enabled


@pytest.mark.parametrize("status", [400, 404, 408, 429, 301])
def test_a_refusal_that_asks_to_abort_fails_the_delivery_and_leaves_the_endpoint(status: int) -> None:
    to = endpoint()
    one = answered(to, status, ABORT)
    assert one.status == "failed_final"
    assert one.run.status == "failed"
    assert Attempt.objects.get(operation_key=one.operation_key).classification == "aborted"
    assert enabled(to)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("status", [500, 504])
def test_an_ambiguous_answer_that_asks_to_abort_is_unknown_and_not_tried_again(status: int, idempotent: bool) -> None:
    to = endpoint(idempotent=idempotent)
    one = answered(to, status, ABORT)
    assert (one.status, one.operation.due_at, one.pointer.due_at) == ("unknown", None, None)
    reconcile.sweep()
    assert (one.status, one.operation.due_at) == ("unknown", None), "nor does the reconciler"


def test_without_it_the_reconciler_would_have_it_sent_again() -> None:
    to = endpoint()
    one = answered(to, 500, ())
    change_operation(one, due_at=None)
    assert reconcile.sweep().scheduled == 1


def test_an_acceptance_that_asks_to_abort_is_an_acceptance() -> None:
    assert answered(endpoint(), 200, ABORT).status == "succeeded"


@pytest.mark.parametrize(("status", "becomes"), [(200, "succeeded"), (404, "prepared"), (500, "unknown")])
def test_a_receiver_that_asks_for_it_is_disabled_and_the_delivery_is_judged_as_ever(status: int, becomes: str) -> None:
    to = endpoint()
    assert answered(to, status, DISABLE).status == becomes
    now = Endpoint.objects.get(pk=to.pk)
    assert not now.enabled
    assert now.disabled_reason == "The receiver asked for it (webhook-delivery: disable)."


def test_both_may_be_asked_for() -> None:
    to = endpoint()
    assert answered(to, 403, BOTH).status == "failed_final"
    assert not enabled(to)


@pytest.mark.parametrize("value", ["", "abort", "abort-message; now", "disabled", "retry"])
def test_other_words_mean_nothing(value: str) -> None:
    to = endpoint()
    assert answered(to, 404, (("webhook-delivery", value),)).status == "prepared"
    assert enabled(to)


def test_what_an_answer_that_was_not_complete_seems_to_ask_for_is_not_heard() -> None:
    to = endpoint()
    assert answered(to, None, BOTH).status == "unknown"
    assert enabled(to)


def test_an_early_refusal_is_heard() -> None:
    early = judge(NOT_SENT, 413, ABORT)
    assert (early.effect, early.classification) == (Effect.FINAL, "aborted")
    assert judge(NOT_SENT, None, ABORT).effect is Effect.NOT_TAKEN


@pytest.mark.parametrize(("conflict_accepts", "becomes"), [(True, "succeeded"), (False, "prepared")])
def test_409_means_what_the_endpoint_says_it_means(conflict_accepts: bool, becomes: str) -> None:
    assert answered(endpoint(conflict_accepts=conflict_accepts), 409, ()).status == becomes


def test_a_redirect_is_tried_again_after_the_longest_step_each_time() -> None:
    to = endpoint(retry_schedule=[5, 300, 7200, 60], retry_jitter=0.0)
    one = answered(to, 301, ())
    for _ in range(3):
        operation = one.operation
        assert operation.due_at is not None
        assert 7190 < (operation.due_at - operation.updated_at).total_seconds() < 7210
        make_due()
        settle(claimed(), 301, watch=Watch())
    make_due()
    settle(claimed(), 301, watch=Watch())
    assert one.status == "failed_final"
    assert one.operation.attempts == 5
