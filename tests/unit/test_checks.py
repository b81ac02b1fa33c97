"""The system checks refuse settings under which a promise of the protocol would not hold."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks

from deliveries.timing import SETTLE_BUDGET_MS
from relay.checks import Timing, check_egress, check_huey, check_transactions, judge_timing

SAFE = Timing(lease_ttl_ms=30_000, heartbeat_ms=5_000, http_timeout_ms=15_000, sweep_ms=5_000)


def ids(messages: list[CheckMessage]) -> list[str | None]:
    return [message.id for message in messages]


def test_the_defaults_are_safe() -> None:
    assert judge_timing(SAFE) == []


def test_the_settings_of_this_run_pass_every_check() -> None:
    assert run_checks() == []


def test_a_lease_of_exactly_the_longest_send_is_enough() -> None:
    longest = 15_000 + SETTLE_BUDGET_MS + 5_000
    assert judge_timing(Timing(longest, 5_000, 15_000, 5_000)) == []


def test_a_lease_one_millisecond_short_of_the_longest_send_is_refused() -> None:
    longest = 15_000 + SETTLE_BUDGET_MS + 5_000
    found = judge_timing(Timing(longest - 1, 5_000, 15_000, 5_000))
    assert ids(found) == ["relay.E001"]
    text = f"{found[0].msg} {found[0].hint}"
    for name in ("RELAY_LEASE_TTL_MS", "RELAY_HTTP_TIMEOUT_MS", "RELAY_HEARTBEAT_MS"):
        assert name in text


@pytest.mark.parametrize("heartbeat", [10_000, 10_001])
def test_a_heartbeat_of_a_third_of_the_lease_is_refused(heartbeat: int) -> None:
    found = judge_timing(Timing(30_000, heartbeat, 1_000, 5_000))
    assert ids(found) == ["relay.E002"]
    assert "RELAY_HEARTBEAT_MS" in found[0].msg
    assert "RELAY_LEASE_TTL_MS" in found[0].msg


def test_a_heartbeat_just_under_a_third_of_the_lease_is_accepted() -> None:
    assert judge_timing(Timing(30_000, 9_999, 1_000, 5_000)) == []


def test_a_sweep_rarer_than_the_lease_is_warned_about() -> None:
    assert ids(judge_timing(Timing(30_000, 5_000, 15_000, 30_001))) == ["relay.W001"]


def test_huey_in_immediate_mode_is_refused(settings: pytest.FixtureRequest) -> None:
    from relay.broker import make

    huey = make("")
    huey._immediate = True
    settings.HUEY = huey  # type: ignore[attr-defined]
    assert ids(check_huey(None)) == ["relay.E003"]


def test_huey_that_keeps_results_is_refused(settings: pytest.FixtureRequest) -> None:
    from relay.broker import make

    huey = make("")
    huey.results = True
    settings.HUEY = huey  # type: ignore[attr-defined]
    assert ids(check_huey(None)) == ["relay.E004"]


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"ENGINE": "django.db.backends.sqlite3"}, "relay.E005"),
        ({"ATOMIC_REQUESTS": True}, "relay.E006"),
        ({"OPTIONS": {"isolation_level": 4}}, "relay.E007"),
    ],
)
def test_a_database_that_breaks_the_ledgers_ground_rules_is_refused(
    change: dict[str, object], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.conf import settings

    changed = {**settings.DATABASES, "default": {**settings.DATABASES["default"], **change}}
    monkeypatch.setattr(settings, "DATABASES", changed)
    assert ids(check_transactions(None)) == [expected]


@pytest.mark.parametrize(
    "allow, deny, found",
    [
        (["10.0.0.0/8"], [], []),
        (["0.0.0.0/0"], [], ["relay.W005"]),
        (["169.254.0.0/16"], [], ["relay.W005"]),
        (["0.0.0.0/0"], ["169.254.0.0/16"], []),
    ],
)
def test_a_way_to_the_credentials_of_the_machine_is_warned_about(
    settings: Any, allow: list[str], deny: list[str], found: list[str]
) -> None:
    settings.RELAY_EGRESS_ALLOW = tuple(map(ip_network, allow))
    settings.RELAY_EGRESS_DENY = tuple(map(ip_network, deny))
    assert ids(check_egress(None)) == found
