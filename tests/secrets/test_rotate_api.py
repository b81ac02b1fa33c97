"""`POST /v1/endpoints/{id}/secret/rotate`."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deliveries import ids, rotation
from deliveries.api import secrets
from deliveries.models import Endpoint, Scope
from deliveries.signing import key_of, new_secret
from tests.api import rows
from tests.api.rows import Caller
from tests.api.test_shape import shaped

pytestmark = pytest.mark.usefixtures("db")


def rotate(by: Caller, endpoint: str, body: Any = None) -> Any:
    return by.post(f"/v1/endpoints/{endpoint}/secret/rotate", body)


def row(endpoint: str) -> Endpoint:
    return Endpoint.objects.get(pk=ids.parse(ids.ENDPOINT, endpoint))


def test_the_new_secret_is_shown_once_and_the_former_one_has_a_day(mine: Caller) -> None:
    target = rows.endpoint(mine)
    answer = rotate(mine, target)
    assert answer.status_code == 200, answer.content
    assert answer["Cache-Control"] == "no-store"
    body = answer.json()
    assert set(body) == {"secret", "public_key", "question_key", "former_until", "settled"}
    assert (body["public_key"], body["question_key"], body["settled"]) == (None, None, True)
    until = datetime.fromisoformat(body["former_until"])
    assert abs(until - datetime.now(UTC) - timedelta(hours=24)) < timedelta(minutes=1)
    assert rotation.secrets_of(row(target), until)[0] == key_of(body["secret"])
    shown = mine.get(f"/v1/endpoints/{target}").content.decode()
    assert body["secret"] not in shown


def test_an_empty_object_and_no_body_mean_the_same(mine: Caller) -> None:
    target = rows.endpoint(mine)
    assert rotate(mine, target, {}).status_code == rotate(mine, target).status_code == 200
    assert len(row(target).former_secrets) == 2


def test_the_public_keys_of_a_pair_are_shown(mine: Caller) -> None:
    target = rows.endpoint(mine)
    body = rotate(mine, target, {"signature": "v1a", "overlap_hours": 0}).json()
    key = key_of(body["secret"])
    assert (body["public_key"], body["question_key"]) == (key.public, key.for_questions().public)
    assert body["former_until"] is None
    assert row(target).former_secrets == []


def test_ones_own_secret_is_taken(mine: Caller) -> None:
    target, own = rows.endpoint(mine), new_secret()
    assert rotate(mine, target, {"secret": own, "overlap_hours": 720}).json()["secret"] == own


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"overlap_hours": -1}, "overlap_hours"),
        ({"overlap_hours": 721}, "overlap_hours"),
        ({"overlap_hours": 1.5}, "overlap_hours"),
        ({"overlap_hours": "1"}, "overlap_hours"),
        ({"secret": "whsec_short"}, "secret"),
        ({"secret": "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="}, "secret"),
        ({"secret": 7}, "secret"),
        ({"signature": "v2"}, "signature"),
        ({"secret": new_secret(), "signature": "v1a"}, "signature"),
        ({"overlap": 1}, "overlap"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(mine: Caller, body: dict[str, Any], field: str) -> None:
    target = rows.endpoint(mine)
    before = row(target).secret_sealed
    assert [error["field"] for error in shaped(rotate(mine, target, body), 422)["errors"]] == [field]
    assert row(target).secret_sealed == before


def test_a_tenth_former_secret_is_a_conflict(mine: Caller) -> None:
    target = rows.endpoint(mine)
    for _ in range(rotation.MOST_FORMER):
        assert rotate(mine, target).status_code == 200
    body = shaped(rotate(mine, target), 409)
    assert "9 former secrets" in body["detail"]


def test_no_process_waits_for_rotations_with_all_of_its_threads(mine: Caller) -> None:
    target = rows.endpoint(mine)
    before = row(target).secret_sealed
    with contextlib.ExitStack() as busy:
        for _ in range(secrets.AT_ONCE):
            busy.enter_context(secrets._WAITING)
        answer = rotate(mine, target)
        shaped(answer, 429)
        assert answer["Retry-After"] == "5"
        assert row(target).secret_sealed == before
    for _ in range(secrets.AT_ONCE + 1):
        assert rotate(mine, target).status_code == 200


def test_it_needs_the_scope_and_the_tenant(mine: Caller, tenant: str) -> None:
    target = rows.endpoint(mine)
    shaped(rotate(rows.caller(Scope.READ, tenant=tenant), target), 403)
    shaped(rotate(rows.caller(tenant=rows.tenant("another")), target), 404)
    shaped(rotate(mine, "ep_0"), 404)
    shaped(rotate(Caller(), target), 401)


def test_no_secret_is_logged(mine: Caller, caplog: pytest.LogCaptureFixture) -> None:
    target = rows.endpoint(mine)
    with caplog.at_level(logging.DEBUG):
        secret = rotate(mine, target).json()["secret"]
        rotate(mine, target, {"secret": secret + "x"})
    assert "has a new signing secret" in caplog.text
    assert secret[6:20] not in caplog.text
