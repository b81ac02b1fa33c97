"""Several requests to one receiver: each gets the answer that was given to it, whatever came before on the wire."""

from __future__ import annotations

import pytest

from deliveries.outcomes import ANSWERED, UNKNOWN
from deliveries.transport.base import Outcome, Request, Transport
from tests.conformance.certificates import HOST, identities
from tests.conformance.receiver import Conversation
from tests.conformance.running import HEADERS
from tests.conformance.script import OK, Gap, Hang, Notify, Read, Script, Send
from tests.conformance.subjects import SUBJECTS, subject

BODY = b'{"a":1}'


def _says(status: int) -> Send:
    return Send(b"HTTP/1.1 %d Said\r\nContent-Length: 0\r\n\r\n" % status)


def _ask(transport: Transport, url: str, timeout_ms: int = 20_000) -> Outcome:
    transport.submit(Request(1, url, HEADERS, BODY, timeout_ms))
    outcomes: list[Outcome] = []
    while not outcomes:
        outcomes = transport.poll(30.0)
    (outcome,) = outcomes
    return outcome


@pytest.fixture(params=["http", "tls"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _conversation(scheme: str, script: Script) -> tuple[Conversation, str]:
    conversation = Conversation(script, context=identities().servers["good"] if scheme == "tls" else None)
    host = f"https://{HOST}" if scheme == "tls" else "http://127.0.0.1"
    return conversation, f"{host}:{conversation.port}/"


@pytest.mark.parametrize("transport", SUBJECTS)
def test_an_informational_answer_does_not_shift_those_after_it(transport: str, scheme: str) -> None:
    script = (
        Read(), Send(b"HTTP/1.1 103 Early\r\n\r\n"), Gap(0.1), _says(500), Read(), _says(201), Read(), _says(202)
    )  # fmt: skip
    conversation, url = _conversation(scheme, script)
    with conversation, subject(transport) as under_test:
        statuses = [_ask(under_test, url).http_status for _ in range(3)]
    # The script is one connection's. Others are answered 200.
    assert statuses == ([500, 200, 200] if transport == "requests" else [500, 201, 202])
    assert conversation.arrived == 3


@pytest.mark.parametrize("transport", SUBJECTS)
def test_an_answer_given_before_it_was_asked_for_is_nobodys(transport: str, scheme: str) -> None:
    surplus = OK + b"HTTP/1.1 418 Stale\r\nContent-Length: 0\r\n\r\n"
    conversation, url = _conversation(scheme, (Read(), Send(surplus), Read(), _says(500)))
    with conversation, subject(transport) as under_test:
        outcomes = [_ask(under_test, url) for _ in range(2)]
    assert [(outcome.verdict, outcome.http_status) for outcome in outcomes] == [(ANSWERED, 200)] * 2
    assert conversation.arrived == 2


@pytest.mark.parametrize("transport", SUBJECTS)
def test_an_answer_that_came_too_late_is_not_the_next_ones(transport: str, scheme: str) -> None:
    conversation, url = _conversation(scheme, (Read(), Hang(), _says(418)))
    with conversation, subject(transport) as under_test:
        late, following = _ask(under_test, url, 400), _ask(under_test, url)
    assert (late.verdict, late.http_status) == (UNKNOWN, None)
    assert (following.verdict, following.http_status) == (ANSWERED, 200)
    assert conversation.arrived == 2


@pytest.mark.parametrize("transport", SUBJECTS)
def test_a_close_notify_that_came_with_the_answer_before_misleads_nobody(transport: str) -> None:
    conversation, url = _conversation("tls", (Read(), Send(OK), Notify(), Read(), Hang()))
    with conversation, subject(transport) as under_test:
        first, second = _ask(under_test, url), _ask(under_test, url)
    assert (first.verdict, first.http_status) == (ANSWERED, 200)
    # The library may have taken the word in with the answer, where no look at the socket finds it: then nobody knows
    # what became of the request that was written after it.
    assert (second.verdict, second.http_status) in ((ANSWERED, 200), (UNKNOWN, None))
    assert conversation.arrived == 2
    assert first.evidence.sends == second.evidence.sends == 1
