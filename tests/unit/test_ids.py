"""Ids of our own making: their form, and their order."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from deliveries import ids


def test_ids_made_one_after_another_are_in_order_however_fast() -> None:
    made = [ids.time_ordered() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_made_by_several_threads_are_different() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: ids.time_ordered(), range(20_000)))
    assert len({one.int >> 64 for one in made}) == len(made), "already by the part that orders them"


def test_an_id_is_a_version_7_uuid_of_this_moment() -> None:
    before = time.time_ns() // 1_000_000
    made = ids.time_ordered()
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= after + 1
