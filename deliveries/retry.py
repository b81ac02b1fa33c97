"""When to try again: pure arithmetic over an endpoint's schedule. Seconds everywhere; no clock is read here."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

LONGEST_RETRY_AFTER = 24 * 3600.0


def delay_seconds(
    schedule: Sequence[int],
    attempts_made: int,
    *,
    jitter: float,
    rng: Random,
    retry_after: float | None = None,
    slow: bool = False,
) -> float | None:
    """Seconds from the end of attempt number `attempts_made` to the next one; None when no tries are left.

    The step is moved by up to `jitter` of itself (0 to 1) either way, so that deliveries that failed together do not
    come back together. A receiver's `retry_after` can lengthen the wait up to 24 h and never shortens it. `slow` takes
    the longest step instead of the next.
    """
    if attempts_made < 1:
        raise ValueError("a delay follows an attempt: attempts_made counts from one")
    if attempts_made > len(schedule):
        return None
    step = max(schedule) if slow else schedule[attempts_made - 1]
    delay = step * (1.0 + jitter * (2.0 * rng.random() - 1.0))
    if retry_after is not None:
        delay = max(delay, min(retry_after, LONGEST_RETRY_AFTER))
    return max(delay, 0.0)


def within_age(age_seconds: float, delay: float, max_age_hours: int) -> bool:
    """True when a try after `delay` more seconds still falls inside the endpoint's maximum age.

    `age_seconds` is the time since the delivery was first due. A try that would come too late is not made earlier:
    the delivery then has no tries left.
    """
    return age_seconds + delay <= max_age_hours * 3600.0
