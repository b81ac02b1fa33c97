from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries.retry import delay_seconds, within_age

_SCHEDULE = (5, 300, 1800, 7200, 18000, 36000, 36000)


def _delay(made: int, *, jitter: float = 0.0, retry_after: float | None = None, seed: int = 1) -> float | None:
    return delay_seconds(_SCHEDULE, made, jitter=jitter, retry_after=retry_after, rng=Random(seed))


def test_the_schedule_is_followed_and_then_there_are_no_tries_left() -> None:
    assert [_delay(made) for made in range(1, 9)] == [*_SCHEDULE, None]


def test_an_empty_schedule_gives_one_attempt() -> None:
    assert delay_seconds((), 1, jitter=0.2, rng=Random(1)) is None


@given(st.integers(1, 7), st.floats(0, 1), st.integers())
def test_jitter_moves_a_step_by_its_share_and_never_below_zero(made: int, jitter: float, seed: int) -> None:
    step = _SCHEDULE[made - 1]
    delay = _delay(made, jitter=jitter, seed=seed)
    assert delay is not None
    assert max(step * (1 - jitter) - 1e-6, 0) <= delay <= step * (1 + jitter) + 1e-6


def test_jitter_spreads_deliveries_that_failed_together() -> None:
    rng = Random(7)
    delays = {delay_seconds(_SCHEDULE, 2, jitter=0.2, rng=rng) for _ in range(100)}
    assert len(delays) == 100


def test_retry_after_lengthens_a_wait_and_never_shortens_it() -> None:
    assert _delay(1, retry_after=60.0) == 60.0
    assert _delay(2, retry_after=60.0) == 300.0
    assert _delay(1, retry_after=0.0) == 5.0


def test_retry_after_reaches_at_most_24_hours() -> None:
    assert _delay(1, retry_after=10.0**9) == 86400.0


def test_retry_after_gives_no_tries_back() -> None:
    assert _delay(8, retry_after=60.0) is None


def test_counting_starts_at_one() -> None:
    with pytest.raises(ValueError, match="from one"):
        _delay(0)


def test_a_try_that_would_come_after_the_maximum_age_is_not_made() -> None:
    assert within_age(3600.0, 3600.0, 2)
    assert not within_age(3600.0, 3601.0, 2)


def test_a_slow_one_waits_for_the_longest_step_each_time_and_has_no_more_tries_than_others() -> None:
    def slow(made: int) -> float | None:
        return delay_seconds((5, 600, 60), made, jitter=0.0, rng=Random(1), slow=True)

    assert [slow(made) for made in range(1, 5)] == [600.0, 600.0, 600.0, None]
    assert delay_seconds((), 1, jitter=0.0, rng=Random(1), slow=True) is None
