"""The resolver: one look-up per name, what is remembered for how long, and threads that wait."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from deliveries.transport import resolve
from deliveries.transport.lookups import Lookups, shared
from deliveries.transport.resolve import Answer, Resolver
from tests.support.name_servers import HERE, Servers, answer_of, until_answered
from tests.support.waiting import wait_until

THERE = ("127.0.0.2",)


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts the resolver's clock forward by so many seconds."""
    ahead = 0.0
    real = time.monotonic

    def forward(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    monkeypatch.setattr("deliveries.transport.resolve.time.monotonic", lambda: real() + ahead)
    return forward


# What is remembered


def test_an_answer_is_remembered_and_known_at_once(resolver: Resolver, servers: Servers) -> None:
    assert resolver.known("a.com") is None
    assert answer_of(resolver, "a.com").addresses == HERE
    known = resolver.known("a.com")
    assert known is not None
    assert known.addresses == HERE
    assert servers.asked == ["a.com"]


def test_a_name_that_is_asked_for_again_while_it_is_looked_up_has_one_look_up(
    resolver: Resolver, servers: Servers
) -> None:
    servers.hold("a.com")
    for _ in range(50):
        resolver.ask("a.com")
    wait_until(lambda: servers.asked, 5, "the look-up began")
    servers.release("a.com")
    until_answered(resolver, "a.com")
    assert servers.asked == ["a.com"]


def test_an_old_answer_is_given_at_once_while_the_name_is_looked_up_again(
    resolver: Resolver, servers: Servers, clock: Callable[[float], None]
) -> None:
    answer_of(resolver, "a.com")
    servers.hang, servers.answers = {"a.com"}, {"a.com": THERE}
    clock(resolve.REMEMBER_S - 1)
    assert resolver.known("a.com") is not None
    assert servers.asked == ["a.com"]
    clock(2)
    for _ in range(3):
        known = resolver.known("a.com")
        assert known is not None
        assert known.addresses == HERE
    wait_until(lambda: servers.asked == ["a.com", "a.com"], 5, "it is looked up again, once")
    servers.release("a.com")
    until_answered(resolver, "a.com")
    known = resolver.known("a.com")
    assert known is not None
    assert known.addresses == THERE


def test_an_answer_is_not_given_for_longer_than_promised(
    resolver: Resolver, servers: Servers, clock: Callable[[float], None]
) -> None:
    answer_of(resolver, "a.com")
    servers.hold("a.com")
    clock(resolve.REMEMBER_S + resolve.STALE_S - 1)
    assert resolver.known("a.com") is not None
    clock(2)
    assert resolver.known("a.com") is None


def test_a_failure_is_remembered_for_a_moment(
    resolver: Resolver, servers: Servers, clock: Callable[[float], None]
) -> None:
    servers.answers = {"a.com": socket.gaierror(socket.EAI_NONAME, "Name or service not known")}
    answer = answer_of(resolver, "a.com")
    assert (answer.addresses, answer.error) == ((), "The host name could not be resolved: Name or service not known.")
    assert resolver.known("a.com") == answer
    clock(resolve.REMEMBER_FAILURE_S + 0.1)
    assert resolver.known("a.com") is None


@pytest.mark.parametrize(
    "failure, error",
    [
        (UnicodeError("label too long"), "The host name could not be resolved: it is not a valid name."),
        (OSError(), "The host name could not be resolved: OSError."),
        (ZeroDivisionError(), "The host name could not be resolved: ZeroDivisionError."),
    ],
)
def test_whatever_a_look_up_raises_is_an_answer(
    resolver: Resolver, servers: Servers, failure: Exception, error: str
) -> None:
    servers.answers = {"a.com": failure}
    assert answer_of(resolver, "a.com").error == error


def test_no_address_is_an_answer_too(resolver: Resolver, servers: Servers) -> None:
    servers.answers = {"a.com": ()}
    assert answer_of(resolver, "a.com").error == "The host name has no address."


def test_a_name_server_in_trouble_does_not_take_an_address_away_that_may_still_be_used(
    resolver: Resolver, servers: Servers, clock: Callable[[float], None]
) -> None:
    answer_of(resolver, "a.com")
    servers.answers = {"a.com": socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")}
    clock(resolve.REMEMBER_S + 1)
    assert answer_of(resolver, "a.com").addresses == HERE
    known = resolver.known("a.com")
    assert known is not None
    assert known.addresses == HERE
    clock(resolve.STALE_S)
    assert resolver.known("a.com") is None
    assert answer_of(resolver, "a.com").addresses == ()


def test_a_name_that_is_gone_is_gone(resolver: Resolver, servers: Servers, clock: Callable[[float], None]) -> None:
    answer_of(resolver, "a.com")
    servers.answers = {"a.com": socket.gaierror(socket.EAI_NONAME, "Name or service not known")}
    clock(resolve.REMEMBER_S + 1)
    assert answer_of(resolver, "a.com").addresses == ()


def test_so_many_names_are_remembered_and_the_oldest_makes_room(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "NAMES_REMEMBERED", 2)
    for host in ("a.com", "b.com", "c.com"):
        answer_of(resolver, host)
    assert [resolver.known(host) is None for host in ("a.com", "b.com", "c.com")] == [True, False, False]


def test_an_address_that_could_not_be_reached_is_tried_last(resolver: Resolver, servers: Servers) -> None:
    servers.answers = {"a.com": ("127.0.0.1", "127.0.0.2", "127.0.0.3")}
    answer_of(resolver, "a.com")
    resolver.put_last("a.com", "127.0.0.1")
    known = resolver.known("a.com")
    assert known is not None
    assert known.addresses == ("127.0.0.2", "127.0.0.3", "127.0.0.1")


# Threads that wait


def test_many_threads_that_wait_for_a_name_share_its_look_up(servers: Servers) -> None:
    servers.hold("a.com")
    lookups = Lookups(servers.look_up)
    came: list[Answer | None] = []
    threads = [threading.Thread(target=lambda: came.append(lookups.answer("a.com", 10))) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: servers.asked, 5, "the look-up began")
    servers.release("a.com")
    for thread in threads:
        thread.join(10)
    assert [answer.addresses for answer in came if answer] == [HERE] * 20
    assert servers.asked == ["a.com"]


def test_who_waits_for_a_name_that_hangs_gives_up_in_time_and_adds_no_thread(servers: Servers) -> None:
    servers.hold("slow.com")
    lookups = Lookups(servers.look_up)
    for _ in range(5):
        assert lookups.answer("slow.com", 0.05) is None
    healthy = lookups.answer("healthy.com", 5)
    assert healthy is not None
    assert servers.asked == ["slow.com", "healthy.com"]
    servers.release("slow.com")
    late = lookups.answer("slow.com", 5)
    assert late is not None
    assert late.addresses == HERE
    assert servers.asked == ["slow.com", "healthy.com"]


def test_an_answer_that_came_too_late_for_anybody_is_asked_for_anew_when_it_is_old(
    servers: Servers, clock: Callable[[float], None]
) -> None:
    servers.hold("slow.com")
    lookups = Lookups(servers.look_up)
    assert lookups.answer("slow.com", 0.05) is None
    servers.release("slow.com")
    wait_until(lambda: not servers.at_once, 5, "the look-up ended")
    clock(resolve.REMEMBER_S + resolve.STALE_S + 1)
    answer = lookups.answer("slow.com", 5)
    assert answer is not None
    assert answer.addresses == HERE
    assert servers.asked == ["slow.com", "slow.com"]


def test_a_process_has_one() -> None:
    assert shared() is shared()
