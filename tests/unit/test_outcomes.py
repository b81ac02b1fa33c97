from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries.outcomes import ANSWERED, EVERY_ROW, NOT_SENT, ROWS, UNKNOWN, Effect, judge, retry_after_seconds

_NOW = 1_760_000_000.0


@pytest.mark.parametrize(
    ("status", "classification", "effect"),
    [
        (200, "accepted", Effect.ACCEPTED),
        (204, "accepted", Effect.ACCEPTED),
        (299, "accepted", Effect.ACCEPTED),
        (301, "redirect", Effect.NOT_TAKEN),
        (308, "redirect", Effect.NOT_TAKEN),
        (400, "rejected", Effect.NOT_TAKEN),
        (404, "rejected", Effect.NOT_TAKEN),
        (408, "rejected_transient", Effect.NOT_TAKEN),
        (409, "rejected", Effect.NOT_TAKEN),
        (410, "gone", Effect.FINAL),
        (425, "rejected_transient", Effect.NOT_TAKEN),
        (429, "rejected_transient", Effect.NOT_TAKEN),
        (500, "server_error", Effect.AMBIGUOUS),
        (502, "server_error", Effect.AMBIGUOUS),
        (503, "rejected_transient", Effect.NOT_TAKEN),
        (504, "server_error", Effect.AMBIGUOUS),
        (521, "server_error", Effect.AMBIGUOUS),
        (999, "server_error", Effect.AMBIGUOUS),
    ],
)
def test_an_answer_means_what_the_table_says(status: int, classification: str, effect: Effect) -> None:
    judgement = judge(ANSWERED, status, ())
    assert (judgement.classification, judgement.effect) == (classification, effect)


def test_every_status_from_200_on_has_a_row() -> None:
    for status in range(200, 1000):
        assert judge(ANSWERED, status, ()).classification != "unknown"


def test_an_informational_status_is_no_answer() -> None:
    assert judge(ANSWERED, 101, ()).effect is Effect.AMBIGUOUS
    assert judge(ANSWERED, None, ()).classification == "unknown"


def test_only_429_and_503_throttle_and_only_410_disables() -> None:
    throttling = {status for status in range(200, 1000) if judge(ANSWERED, status, ()).throttle}
    disabling = {status for status in range(200, 1000) if judge(ANSWERED, status, ()).disable_endpoint}
    assert throttling == {429, 503}
    assert disabling == {410}


def test_what_was_not_sent_may_be_tried_again_and_what_is_unknown_is_ambiguous() -> None:
    assert judge(NOT_SENT, None, ()).effect is Effect.NOT_TAKEN
    assert judge(UNKNOWN, None, ()).effect is Effect.AMBIGUOUS


def test_a_2xx_that_came_too_early_is_not_taken_for_an_acceptance() -> None:
    assert judge(UNKNOWN, 200, ()).effect is Effect.AMBIGUOUS
    assert judge(NOT_SENT, 200, ()).effect is Effect.NOT_TAKEN


def test_a_refusal_before_the_request_was_complete_is_heard() -> None:
    early = judge(NOT_SENT, 429, (("Retry-After", "7"),))
    assert (early.classification, early.throttle, early.retry_after_s) == ("rejected_transient", True, 7.0)
    assert judge(NOT_SENT, 413, ()).classification == "not_sent"
    assert judge(NOT_SENT, 410, ()).disable_endpoint


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        ("999999999", 86400.0),
        ("-5", None),
        ("+5", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("٣", None),
        ("", None),
        ("soon", None),
        (formatdate(_NOW + 90, usegmt=True), 90.0),
        (formatdate(_NOW - 90, usegmt=True), 0.0),
        (formatdate(_NOW + 10**7, usegmt=True), 86400.0),
        ("Fri, 99 Foo 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_in_every_form_and_never_negative(text: str, seconds: float | None) -> None:
    assert retry_after_seconds((("RETRY-AFTER", text),), now=_NOW) == seconds


def test_a_retry_after_date_counts_by_the_receivers_own_clock() -> None:
    headers = (("Date", formatdate(1000, usegmt=True)), ("Retry-After", formatdate(1060, usegmt=True)))
    assert retry_after_seconds(headers, now=_NOW) == 60.0


@given(st.text(max_size=60))
def test_no_retry_after_text_raises_or_leaves_its_bounds(text: str) -> None:
    seconds = retry_after_seconds((("Retry-After", text),), now=_NOW)
    assert seconds is None or 0.0 <= seconds <= 86400.0


def test_retry_after_counts_only_where_the_endpoint_is_throttled() -> None:
    assert judge(ANSWERED, 503, (("Retry-After", "9"),)).retry_after_s == 9.0
    assert judge(ANSWERED, 500, (("Retry-After", "9"),)).retry_after_s is None


def test_the_words_are_those_of_the_record() -> None:
    from deliveries.models import Verdict

    assert {ANSWERED, NOT_SENT, UNKNOWN} == set(Verdict.values)
    assert {row.verdict for row in ROWS} == set(Verdict.values)


def test_sickness_is_the_receivers_and_never_a_payloads_fault() -> None:
    sick = {status for status in range(200, 1000) if judge(ANSWERED, status, ()).sick}
    assert sick == {408, 425, 429, *range(500, 1000)}
    assert judge(NOT_SENT, None, ()).sick
    assert judge(UNKNOWN, None, ()).sick


def test_only_a_redirect_is_tried_again_slowly() -> None:
    assert {status for status in range(200, 1000) if judge(ANSWERED, status, ()).slow} == set(range(300, 400))


_ABORT = (("Webhook-Delivery", "abort-message"),)


def test_an_event_that_the_receiver_aborts_is_never_tried_again_and_an_ambiguous_answer_proves_no_more() -> None:
    for status in range(200, 1000):
        plain, aborted = judge(ANSWERED, status, ()), judge(ANSWERED, status, _ABORT)
        if plain.effect is Effect.ACCEPTED:
            assert aborted == plain, "beside an acceptance it means nothing"
            continue
        assert aborted.no_more, status
        assert aborted.effect is (Effect.AMBIGUOUS if plain.effect is Effect.AMBIGUOUS else Effect.FINAL), status
        assert aborted.disable_endpoint == plain.disable_endpoint, status


@pytest.mark.parametrize("verdict", [NOT_SENT, UNKNOWN])
def test_an_acceptance_that_came_too_early_aborts_nothing(verdict: str) -> None:
    assert judge(verdict, 204, _ABORT) == judge(verdict, 204, ())


def test_what_a_receiver_asks_for_may_stand_in_several_fields() -> None:
    both = judge(ANSWERED, 403, (("webhook-delivery", "disable"), ("x", "y"), ("Webhook-Delivery", " Abort-Message ")))
    assert both.effect is Effect.FINAL
    assert both.no_more
    assert both.disable_endpoint


def test_an_endpoint_that_says_so_has_accepted_with_a_409() -> None:
    said = judge(ANSWERED, 409, _ABORT, conflict_accepts=True)
    assert (said.classification, said.effect, said.no_more) == ("accepted", Effect.ACCEPTED, False)
    assert judge(NOT_SENT, 409, (), conflict_accepts=True).effect is Effect.NOT_TAKEN
    for status in {*range(200, 1000)} - {409}:
        assert judge(ANSWERED, status, (), conflict_accepts=True) == judge(ANSWERED, status, ())


def test_a_classification_has_one_effect() -> None:
    effects = {row.classification: row.effect for row in EVERY_ROW}
    assert all(effects[row.classification] is row.effect for row in EVERY_ROW)
