"""The lanes of the resolver: slow names make room for others, and threads are bounded."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from deliveries.transport import resolve
from deliveries.transport.bell import Bell
from deliveries.transport.resolve import Resolver
from tests.support.name_servers import HERE, Servers, answer_of, until_answered
from tests.support.waiting import wait_until


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.release(*servers.hang)


@pytest.fixture
def resolver(servers: Servers) -> Iterator[Resolver]:
    resolver = Resolver(servers.look_up)
    yield resolver
    resolver.close()


def test_look_ups_that_take_too_long_make_room_for_new_names(
    resolver: Resolver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "QUICK_AT_ONCE", 4)
    slow = [f"slow{at}.com" for at in range(10)]
    servers.hold(*slow)
    for host in (*slow, "healthy.com"):
        resolver.ask(host)
    assert until_answered(resolver, "healthy.com")["healthy.com"].addresses == HERE
    assert servers.at_once == 10


class BellOfASlowThread(Bell):
    """A clock that rings it goes on only when `go_on` is set: as a thread does that loses the processor there."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def ring(self) -> None:
        super().ring()
        if isinstance(threading.current_thread(), threading.Timer):
            self.go_on.wait(30)


def test_the_next_clock_is_set_although_the_last_ones_thread_has_not_ended(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "QUICK_AT_ONCE", 4)
    monkeypatch.setattr(resolve, "QUICK_S", 0.05)
    bell = BellOfASlowThread()
    resolver = Resolver(servers.look_up, bell)
    slow = [f"slow{at}.com" for at in range(10)]
    servers.hold(*slow)
    try:
        for host in (*slow, "healthy.com"):
            resolver.ask(host)
        assert until_answered(resolver, "healthy.com")["healthy.com"].addresses == HERE
    finally:
        bell.go_on.set()
        resolver.close()


def test_names_that_are_known_to_be_slow_have_a_lane_of_their_own(
    resolver: Resolver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "SLOW_AT_ONCE", 2)
    monkeypatch.setattr(resolve, "QUICK_S", 0.05)
    monkeypatch.setattr(resolve, "REMEMBER_S", 0.0)
    monkeypatch.setattr(resolve, "STALE_S", 0.0)
    slow = [f"slow{at}.com" for at in range(6)]
    servers.hold(*slow)
    _make_slow(resolver, servers, *slow)
    servers.hold(*slow)
    servers.most_at_once = 0
    for host in slow:
        resolver.ask(host)
    wait_until(lambda: servers.at_once == 2, 5, "two slow names are looked up")
    monkeypatch.setattr(resolve, "QUICK_AT_ONCE", 1)
    for at in range(20):
        answer_of(resolver, f"healthy{at}.com")
    assert servers.most_at_once == 3
    servers.release(*slow)
    until_answered(resolver, *slow)
    assert servers.most_at_once <= 3


def test_the_least_slow_of_the_slow_names_is_first(
    resolver: Resolver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "SLOW_AT_ONCE", 1)
    monkeypatch.setattr(resolve, "QUICK_S", 0.02)
    servers.hold("worst.com", "bad.com", "blocking.com")
    _make_slow(resolver, servers, "bad.com", "blocking.com", "worst.com")
    servers.hold("blocking.com")
    servers.asked.clear()
    for host in ("blocking.com", "worst.com", "bad.com"):
        resolver.ask(host)
    wait_until(lambda: servers.asked == ["blocking.com"], 5, "the lane is full")
    servers.release("blocking.com")
    until_answered(resolver, "worst.com")
    assert servers.asked == ["blocking.com", "bad.com", "worst.com"]


def test_a_name_that_was_quick_again_is_back_in_the_quick_lane(
    resolver: Resolver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "QUICK_S", 0.02)
    servers.hold("a.com", "b.com")
    _make_slow(resolver, servers, "a.com", "b.com")
    answer_of(resolver, "a.com")
    monkeypatch.setattr(resolve, "SLOW_AT_ONCE", 0)
    answer_of(resolver, "a.com")
    resolver.ask("b.com")
    answer_of(resolver, "c.com")
    assert servers.asked[-3:] == ["a.com", "a.com", "c.com"]


def test_no_more_threads_are_made_than_promised(
    resolver: Resolver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "ALL_AT_ONCE", 8)
    monkeypatch.setattr(resolve, "QUICK_S", 0.02)
    hosts = [f"slow{at}.com" for at in range(20)]
    servers.hold(*hosts)
    for host in hosts:
        resolver.ask(host)
    wait_until(lambda: servers.at_once == 8, 5, "as many as may be")
    servers.release(*hosts)
    until_answered(resolver, *hosts)
    assert servers.most_at_once == 8
    assert sorted(servers.asked) == sorted(hosts)


def test_a_name_that_hangs_has_one_thread_however_often_it_is_given_up(resolver: Resolver, servers: Servers) -> None:
    servers.hold("slow.com")
    for at in range(200):
        resolver.ask("slow.com")
        answer_of(resolver, f"healthy{at}.com")
    assert servers.asked.count("slow.com") == 1
    assert servers.at_once == 1


def test_without_a_thread_there_is_an_answer_that_says_so(
    resolver: Resolver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        resolver.ask("a.com")
    answer = until_answered(resolver, "a.com")["a.com"]
    assert answer.error == "The host name could not be resolved: no thread could be started."
    assert answer_of(resolver, "a.com").addresses == HERE


def test_the_usual_size_of_stacks_is_left_as_it_was(resolver: Resolver) -> None:
    usual = threading.stack_size()
    answer_of(resolver, "a.com")
    assert threading.stack_size() == usual


def test_a_look_up_that_ends_after_the_resolver_was_closed_rings_nobody(servers: Servers) -> None:
    resolver = Resolver(servers.look_up)
    servers.hold("slow.com")
    resolver.ask("slow.com")
    wait_until(lambda: servers.at_once == 1, 5, "the look-up began")
    number = resolver.fileno()
    resolver.close()
    other = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        assert other == number, "the number is someone else's by now"
        servers.release("slow.com")
        wait_until(lambda: servers.at_once == 0, 5, "the look-up ended")
        for thread in threading.enumerate():
            if thread.name == "relay-resolve":
                thread.join(5)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
    finally:
        os.close(other)


def _make_slow(resolver: Resolver, servers: Servers, *hosts: str) -> None:
    """Have these names, which hang, answered one after the other, each later than a quick name would be."""
    for host in hosts:
        resolver.ask(host)
    for host in hosts:
        wait_until(lambda host=host: host in servers.asked, 5, "the look-up began")  # type: ignore[misc]
    started = time.monotonic()
    for at, host in enumerate(hosts, 2):
        wait_until(lambda at=at: time.monotonic() - started > at * resolve.QUICK_S, 5, "it has taken long")  # type: ignore[misc]
        servers.release(host)
        until_answered(resolver, host)
