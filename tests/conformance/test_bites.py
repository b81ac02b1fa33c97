"""The suite turns red for the faults that a transport typically has. Each is built into the default one here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pycurl
import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport import base, curl, curl_connections, curl_handle
from deliveries.transport.base import Evidence, Head, Outcome, Request, Transport
from tests.conformance import test_random
from tests.conformance.cases import every_case
from tests.conformance.running import run
from tests.conformance.subjects import subject
from tests.conformance.suite import examine

TABLE = {case.name: case for case in every_case()}
Patch = pytest.MonkeyPatch


class Wrapped:
    """A transport around another: what is given to it and what comes back may be changed on the way."""

    def __init__(
        self,
        inner: Transport,
        *,
        given: Callable[[Request], Request] = lambda request: request,
        back: Callable[[Outcome], Outcome] = lambda outcome: outcome,
    ) -> None:
        self._inner = inner
        self.most = inner.most
        self._given = given
        self._back = back

    @property
    def in_flight(self) -> int:
        return self._inner.in_flight

    def submit(self, request: Request) -> None:
        self._inner.submit(self._given(request))

    def poll(self, timeout: float, wake: int | None = None) -> list[Outcome]:
        return [self._back(outcome) for outcome in self._inner.poll(timeout, wake)]

    def abort(self, keys: Iterable[int]) -> list[Outcome]:
        return self._inner.abort(keys)

    def close(self) -> None:
        self._inner.close()


class Resending(Wrapped):
    """Sends again, once and unseen, what had no answer."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._sent: dict[int, Request] = {}

    def submit(self, request: Request) -> None:
        self._sent[request.key] = request
        super().submit(request)

    def poll(self, timeout: float, wake: int | None = None) -> list[Outcome]:
        told = []
        for outcome in super().poll(timeout, wake):
            again = self._sent.pop(outcome.key, None)
            if outcome.verdict == UNKNOWN and again is not None:
                self._inner.submit(again)
            else:
                told.append(outcome)
        return told


def red(names: Iterable[str], wrap: Callable[[Transport], Transport] = lambda inner: inner) -> set[str]:
    """Those of the cases that the suite finds wrong."""
    found = examine([TABLE[name] for name in names], "curl", wrap=wrap)
    return {name for name, sentences in found.items() if sentences}


def all_red(names: Iterable[str], wrap: Callable[[Transport], Transport] = lambda inner: inner) -> None:
    assert red(names, wrap) == set(names)


SOUND = (
    "closed after a header line", "101 then 200", "200 early, then closed", "no answer", "closed after the request",
    "status 200", "closed between two requests", "redirect 307", "reset while the body is sent", "a body that stops",
)  # fmt: skip


def test_without_a_fault_the_same_cases_are_green() -> None:
    assert red(SOUND) == set()


def test_the_status_of_a_head_that_was_cut(monkeypatch: Patch) -> None:
    monkeypatch.setattr(curl, "read_head", lambda lines: base.read_head([*lines, b"\r\n"]))
    all_red(["closed after the status line", "closed after a header line", "reset in the head"])


def test_101_taken_for_an_answer(monkeypatch: Patch) -> None:
    def lenient(lines: list[bytes]) -> Head:
        head = base.read_head(lines)
        return Head(101, (), "") if "101" in head.trouble else head

    monkeypatch.setattr(curl, "read_head", lenient)
    all_red(["101 then 200", "101 and 200 at once", "101 and silence"])


def test_a_2xx_accepted_before_the_request_was_complete(monkeypatch: Patch) -> None:
    def lenient(evidence: Evidence, status: int | None) -> str:
        return ANSWERED if evidence.head_complete else base.verdict_of(evidence, status)

    monkeypatch.setattr(curl, "verdict_of", lenient)
    all_red(["200 early, the rest is left", "413 early, the rest is left"])


def test_a_timeout_after_everything_was_written_called_not_sent(monkeypatch: Patch) -> None:
    def hopeful(evidence: Evidence, status: int | None) -> str:
        return base.verdict_of(evidence, status) if evidence.head_complete else NOT_SENT

    monkeypatch.setattr(curl, "verdict_of", hopeful)
    all_red(["no answer", "a head that drips", "reset after the request", "close_notify after the request"])


def test_a_second_send_of_its_own() -> None:
    all_red(["closed after the request", "reset in the head", "garbage", "a fatal alert after the request"], Resending)


def test_the_second_send_that_libcurl_makes_by_itself(monkeypatch: Patch) -> None:
    begin, on_prereq = curl_handle.Handle.begin, curl_handle.Handle._on_prereq

    def begin_with_postfields(self: curl_handle.Handle, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.curl.setopt(pycurl.POSTFIELDS, self.request.body)

    def let_pass(self: curl_handle.Handle, *args: Any) -> int:
        if self.sends:
            return pycurl.PREREQFUNC_OK
        return on_prereq(self, *args)

    monkeypatch.setattr(curl_handle.Handle, "begin", begin_with_postfields)
    monkeypatch.setattr(curl_handle.Handle, "_on_prereq", let_pass)
    all_red(["closed after the request", "reset after the request", "closed in the status line"])


def test_a_dead_connection_used_again(monkeypatch: Patch) -> None:
    monkeypatch.setattr(
        curl_connections.Connections, "usable", lambda self, ends, tls: self._by_ends[ends].fd if ends else -1
    )
    all_red(["closed between two requests", "an answer too many between two requests"])


def misled(wrap: Callable[[Transport], Transport] = lambda inner: inner) -> list[str]:
    """What the random trials find."""
    with subject("curl") as transport:
        seen = run(wrap(transport), test_random.trials(0), at_once=48)
    return [sentence for one in seen for sentence in test_random.misleading(one, "curl")]


def test_the_random_trials_find_hope_taken_for_proof(monkeypatch: Patch) -> None:
    monkeypatch.setattr(curl, "verdict_of", lambda evidence, status: ANSWERED if status == 200 else NOT_SENT)
    assert any("called not sent, but the receiver has the request" in sentence for sentence in misled())


def test_the_random_trials_find_a_second_send() -> None:
    assert any("more often than it was sent" in sentence for sentence in misled(Resending))


def test_the_random_trials_find_a_status_of_a_head_that_was_cut(monkeypatch: Patch) -> None:
    monkeypatch.setattr(curl, "read_head", lambda lines: base.read_head([*lines, b"\r\n"]))
    assert any("did not give in full" in sentence for sentence in misled())


def test_redirects_followed(monkeypatch: Patch) -> None:
    begin = curl_handle.Handle.begin

    def follow(self: curl_handle.Handle, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.curl.setopt(pycurl.FOLLOWLOCATION, 1)

    monkeypatch.setattr(curl_handle.Handle, "begin", follow)
    all_red(["redirect 303", "redirect 307"])


def test_a_deadline_that_is_not_kept() -> None:
    def patient(inner: Transport) -> Transport:
        return Wrapped(inner, given=lambda request: request._replace(timeout_ms=request.timeout_ms + 4_000))

    all_red(["no answer", "endless 100", "a body that stops"], patient)


def test_evidence_that_claims_too_much() -> None:
    def boast(outcome: Outcome) -> Outcome:
        return outcome._replace(evidence=outcome.evidence._replace(request_complete=True))

    all_red(["reset while the body is sent", "closed while the body is sent"], lambda inner: Wrapped(inner, back=boast))


def test_evidence_that_claims_too_little() -> None:
    def modest(outcome: Outcome) -> Outcome:
        return outcome._replace(evidence=outcome.evidence._replace(body_bytes_written=0, request_complete=False))

    all_red(["status 200", "closed after the request"], lambda inner: Wrapped(inner, back=modest))


def test_an_outcome_that_is_never_reported(monkeypatch: Patch) -> None:
    from tests.conformance import running

    monkeypatch.setattr(running, "GRACE_S", 0.5)

    class Losing(Wrapped):
        def poll(self, timeout: float, wake: int | None = None) -> list[Outcome]:
            return [outcome for outcome in super().poll(timeout, wake) if outcome.verdict != UNKNOWN]

    all_red(["no answer"], Losing)
