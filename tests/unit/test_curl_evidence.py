"""The rule that turns evidence into a verdict, where no wire can be made to show it; and what a request shows."""

from __future__ import annotations

import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Evidence, Request, Tls, verdict_of


@pytest.mark.parametrize("offered", [0, 1, 500])
@pytest.mark.parametrize("complete", [False, True])
def test_what_was_begun_twice_is_unknown_whatever_the_counts_say(offered: int, complete: bool) -> None:
    evidence = Evidence(offered, 7, 0, sends=2, request_complete=complete, head_complete=complete)
    assert verdict_of(evidence, 200 if complete else None) == UNKNOWN


def test_what_was_begun_once_is_judged_by_its_counts() -> None:
    assert verdict_of(Evidence(0, 7, 0, sends=1), None) == NOT_SENT
    assert verdict_of(Evidence(), None) == NOT_SENT
    assert verdict_of(Evidence(200, 7, 7, 1, request_complete=True, head_complete=True), 200) == ANSWERED
    assert verdict_of(Evidence(200, 7, 7, 1, request_complete=True), None) == UNKNOWN


@pytest.mark.parametrize("shown", [repr, str, "{}".format, lambda one: f"{[one]}"])
def test_a_request_shows_neither_its_headers_nor_its_body_nor_its_query(shown: object) -> None:
    assert callable(shown)
    request = Request(
        7,
        "https://me:hush-1@hooks.customer.com:8443/in?token=hush-2#hush-3",
        (("Authorization", "Bearer hush-4"), ("X-hush-5", "hush-6")),
        b"hush-7",
        5000,
        tls=Tls(client_key=b"hush-8"),
    )
    text = shown(request)
    assert "hush" not in text
    assert "Request(key=7, url='https://hooks.customer.com:8443/in', headers=2, body=6 bytes)" in text


def test_a_request_with_a_url_that_is_none_can_be_shown() -> None:
    assert repr(Request(1, "", (), b"", 1)) == "Request(key=1, url='', headers=0, body=0 bytes)"
    assert "hush" not in repr(Request(1, "me:hush@host", (), b"", 1))
