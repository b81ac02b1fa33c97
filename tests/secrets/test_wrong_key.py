"""A key ring that does not open what is stored fails closed: nothing starts, and nothing is sent unsigned."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.core.checks import CheckMessage
from pytest_django.fixtures import Settings

from deliveries import endpoints, ids, rotation, sealing
from deliveries.dispatch.claiming import Walk
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.limits import Limits
from deliveries.dispatch.sending import SEALED_PAUSE_S
from deliveries.egress import EgressPolicy
from deliveries.models import Endpoint
from deliveries.signing import Signature, new_secret
from deliveries.transport.curl import CurlTransport
from relay.checks import check_sealing_keys
from tests.support import database
from tests.support.consumer import Consumer
from tests.support.deliveries import endpoint, events, submitted, succeeded
from tests.support.programs import BASE_DIR
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

URL = "http://127.0.0.1:9/"
OTHER = "another key of the tests " + "9" * 40


def checked() -> list[CheckMessage]:
    return check_sealing_keys(None, databases=["default"])


def test_a_ring_that_opens_everything_is_fine(tenant: str, settings: Settings) -> None:
    assert checked() == []
    endpoint(tenant, URL)
    first = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OTHER, [first]
    endpoint(tenant, URL)
    assert checked() == []


def test_keys_that_are_missing_are_an_error_which_says_how_many_endpoints_need_them(
    tenant: str, settings: Settings
) -> None:
    for _ in range(3):
        endpoint(tenant, URL)
    lost = sealing.key_ids()[0]
    settings.SECRET_KEY = OTHER
    endpoint(tenant, URL)
    (found,) = checked()
    assert (found.id, found.is_serious()) == ("relay.E008", True)
    assert f"{lost} (3 endpoints)" in found.msg
    assert "RELAY_SECRET_KEY_FALLBACKS" in str(found.hint)


@pytest.mark.parametrize("column", ["secret_headers_sealed", "auth_sealed", "client_key_sealed"])
def test_every_sealed_column_counts(tenant: str, column: str) -> None:
    one, _ = endpoint(tenant, URL)
    Endpoint.objects.filter(pk=one.pk).update(**{column: "0123456789ab.AAAA"})
    (found,) = checked()
    assert "0123456789ab (1 endpoints)" in found.msg


def test_former_secrets_count_until_their_time_is_over(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    for hours, expected in ((1, 1), (-1, 0)):
        until = (datetime.now(UTC) + timedelta(hours=hours)).isoformat()
        former = [{"sealed": "0123456789ab.AAAA", "until": until}]
        Endpoint.objects.filter(pk=one.pk).update(former_secrets=former)
        assert len(checked()) == expected


def test_deleted_endpoints_do_not_count(tenant: str, settings: Settings) -> None:
    one, _ = endpoint(tenant, URL)
    endpoints.delete(tenant, one.endpoint_id)
    settings.SECRET_KEY = OTHER
    assert checked() == []


def test_what_is_no_token_is_an_error_that_does_not_repeat_it(tenant: str) -> None:
    one, secret = endpoint(tenant, URL)
    Endpoint.objects.filter(pk=one.pk).update(secret_sealed=secret)
    (found,) = checked()
    assert "none that is a key (1 endpoints)" in found.msg
    assert secret[:12] not in f"{found.msg} {found.hint}"


def test_where_no_database_is_named_none_is_asked() -> None:
    assert check_sealing_keys(None) == []


@pytest.fixture
def environment(emptied: None) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database.url()}


@pytest.mark.parametrize("command", ["serve", "run_huey"])
def test_web_server_and_workers_do_not_start(tenant: str, command: str, environment: dict[str, str]) -> None:
    endpoint(tenant, URL)
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=BASE_DIR,
        env={**environment, "RELAY_SECRET_KEY": OTHER},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "(1 endpoints)" in line and "RELAY_SECRET_KEY_FALLBACKS" in line


@pytest.fixture
def engine() -> Iterator[Engine]:
    transport = CurlTransport(EgressPolicy.from_settings())
    yield Engine(owner="here:1:0", transport=transport, limits=Limits(), walk=Walk(), wake=lambda: None)
    transport.close()


def test_a_delivery_whose_secret_does_not_open_costs_no_attempt_and_waits(
    tenant: str, settings: Settings, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with Sink() as sink:
        broken, _ = endpoint(tenant, f"{sink.url}broken")
        endpoint(tenant, f"{sink.url}good")
        settings.SECRET_KEY, first = OTHER, settings.SECRET_KEY
        unopenable = sealing.seal(new_secret(), rotation.row_of(broken.endpoint_id))
        settings.SECRET_KEY = first
        Endpoint.objects.filter(pk=broken.pk).update(secret_sealed=unopenable)
        both = submitted(events(tenant))
        (to_broken,) = (one for one in both if one.pointer.endpoint_id == broken.pk)
        (to_good,) = (one for one in both if one is not to_broken)
        deadline = time.monotonic() + 20
        while not succeeded(to_good) or engine.held:
            assert time.monotonic() < deadline
            engine._turn(claiming=True, tick=lambda: False)
        assert {request.path for request in sink.requests} == {"/good"}
    assert (to_broken.status, to_broken.operation.attempts, to_broken.attempts) == ("prepared", 0, [])
    paused = Endpoint.objects.get(pk=broken.pk).blocked_until
    assert paused is not None
    assert 0 < (paused - datetime.now(UTC)).total_seconds() <= SEALED_PAUSE_S
    said = [line for line in caplog.messages if "nothing is sent to" in line]
    assert len(said) == 1
    assert ids.render(ids.ENDPOINT, broken.endpoint_id) in said[0]
    assert unopenable not in caplog.text


def test_it_is_delivered_once_the_endpoint_has_a_secret_again(tenant: str) -> None:
    with Sink() as sink:
        one, _ = endpoint(tenant, sink.url)
        with Consumer(1) as consumer:
            Endpoint.objects.filter(pk=one.pk).update(secret_sealed="0123456789ab.AAAA")
            (watched,) = submitted(events(tenant))
            wait_until(lambda: "nothing is sent to" in consumer.said(), 20, "it says that the secret does not open")
            wait_until(lambda: Endpoint.objects.get(pk=one.pk).blocked_until, 10, "it is left alone")
            made = rotation.rotate(one.endpoint_id, overlap=timedelta(0), signature=Signature.V1)
            assert made is not None
            wait_until(lambda: succeeded(watched), 20, "it is delivered")
        assert len(sink.requests) == 1
    assert watched.operation.attempts == 1
