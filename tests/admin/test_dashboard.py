"""The first page says what waits, in numbers that never count a table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from deliveries import ids
from tests.admin import rows
from tests.admin.test_pages import plant_everything


def test_the_dashboard_says_what_waits(administrator: Client) -> None:
    plant_everything()
    endpoint_id = rows.endpoint(enabled=False, disabled_reason="the receiver answered 410 Gone")
    context = administrator.get("/admin/").context
    numbers = {card.title: card.number for card in context["cards"]}
    assert numbers["Unknown, needs a person"] == "3"
    assert numbers["In flight"] == "2"
    assert numbers["Due now"] == "4"
    assert numbers["Takeovers in 24 h"] == "2"
    assert ids.render(ids.ENDPOINT, endpoint_id) in [one["name"] for one in context["trouble"]]


def test_a_bounded_number_says_that_it_is_bounded(administrator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.dashboard.CAP", 2)
    for _ in range(4):
        rows.delivery("unknown")
    numbers = {card.title: card.number for card in administrator.get("/admin/").context["cards"]}
    assert numbers["Unknown, needs a person"] == "2+"


def test_the_dashboard_shows_a_person_only_what_they_may_see(person: Callable[..., Client]) -> None:
    plant_everything()
    rows.endpoint(enabled=False, disabled_reason="the receiver answered 410 Gone")
    context = person("ledger.view_lease").get("/admin/").context
    assert [card.title for card in context["cards"]] == ["In flight"]
    assert context["trouble"] == []
