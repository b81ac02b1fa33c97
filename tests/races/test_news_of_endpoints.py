"""News of endpoints waits for nobody: whoever stands still with a row in hand keeps only its own news back."""

from __future__ import annotations

import pytest
from django.db import transaction

from deliveries.health import Watch
from tests.limits.hands import accepted, claimed, endpoint, settle, state
from tests.races.rival import Observer, Rival
from tests.support import database

pytestmark = pytest.mark.django_db(transaction=True)


def test_news_of_an_endpoint_that_somebody_holds_locked_is_kept_and_the_others_are_written(observer: Observer) -> None:
    held, free, watch = endpoint(), endpoint(), Watch()
    for to in (held, free):
        accepted(to, 2)
    settle(claimed(2), 503, watch=watch)
    assert (state(held).window_total, state(free).window_total) == (1, 1)

    found = claimed(2)
    with transaction.atomic():
        database.lock("deliveries_endpoint_state", "endpoint_id", held.pk)
        rival = Rival(lambda: settle(found, 503, watch=watch))
        assert not observer.see_waiting_or_done(rival), "it waits for the row"
        rival.result()
    assert (state(held).window_total, state(free).window_total) == (1, 2)
    watch.write(at_once=True)
    assert state(held).window_total == 2
