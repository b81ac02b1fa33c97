"""Every hostile URL at both checks: when an endpoint is saved, and at the socket of everything that makes connections.

The check at the socket is tried in a network where every address is this machine's, with a server at each that counts
who calls. Where no such network can be made, what is left is that no socket for IP is even asked for: that holds for
everything written in Python, and for libcurl as long as it gets its sockets from us, as it is told to.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from deliveries.egress import EgressPolicy, UrlRefused, Why
from tests.egress import namespace, urls
from tests.egress.senders import KINDS

LINES = urls.read()
UNREACHABLE = {"224.0.0.1", "255.255.255.255", "ff02::1", "fe80::1"}
"""The kernel makes no TCP connection to these, guard or no guard."""

needs_namespace = pytest.mark.skipif(not namespace.available(), reason="this machine lets nobody make namespaces")
each_line = pytest.mark.parametrize("line", LINES, ids=lambda line: ascii(line.url)[1:-1][:80])
each_kind = pytest.mark.parametrize("kind", KINDS)


@functools.cache
def _played(scene: str, kind: str) -> dict[str, dict[str, Any]]:
    found = namespace.play(scene, kind, outside=scene == "watched")
    assert [one["url"] for one in found] == [line.url for line in LINES]
    return {one["url"]: one for one in found}


@each_line
def test_a_hostile_url_is_refused_when_saved_and_the_reason_is_of_the_right_kind(line: urls.Line) -> None:
    policy = EgressPolicy()
    if line.saved == "ok":
        policy.check_url(line.url)
        return
    with pytest.raises(UrlRefused) as caught:
        policy.check_url(line.url)
    assert caught.value.why == Why(line.saved)
    assert caught.value.reason.endswith(".")


@needs_namespace
@each_kind
@each_line
def test_a_hostile_url_leads_to_no_connection_even_if_it_had_been_saved(line: urls.Line, kind: str) -> None:
    found = _played("hostile", kind)[line.url]
    if line.called:
        address, _ = found["calls"][0]
        assert address in line.addresses
        return
    assert found["calls"] == []
    assert (found["verdict"], found["offered"]) == ("not_sent", 0)
    assert found["error"].endswith(".")


@needs_namespace
@each_kind
def test_without_the_guard_the_same_urls_reach_what_they_are_after(kind: str) -> None:
    guarded, unguarded = _played("hostile", kind), _played("unguarded", kind)
    kept_away = [
        line
        for line in LINES
        if guarded[line.url]["error"].endswith("may not be called.") and not UNREACHABLE & set(line.addresses)
    ]
    assert len(kept_away) > 50
    assert [line.url for line in kept_away if not unguarded[line.url]["calls"]] == []


@each_kind
@each_line
def test_a_hostile_url_leads_to_no_socket(line: urls.Line, kind: str) -> None:
    attempts = _played("watched", kind)[line.url]["attempts"]
    assert (attempts > 0) is line.called


@needs_namespace
@each_kind
def test_a_name_that_turns_private_is_not_called_there_nor_over_the_connection_that_it_had(kind: str) -> None:
    found = namespace.play("rebinding", kind)
    assert found["verdicts"][0] == "answered"
    assert found["verdicts"][-2:] == ["not_sent", "not_sent"]
    assert found["errors"][-1] == "The address 10.0.0.5 port 80 may not be called."
    assert {address for address, _ in found["calls"]} == {"93.184.216.34"}
    assert found["requests"] == {"93.184.216.34": found["verdicts"].count("answered")}
    assert found["asked"] >= 2
    if kind == "curl":
        assert found["reused"][1], "the second request was to find an open connection"
