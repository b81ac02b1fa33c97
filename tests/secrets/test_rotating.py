"""The ring of an endpoint's secrets: who signs, in which order, and for how long."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test import override_settings

from deliveries import endpoints, rotation, sealing, signing
from deliveries.dispatch.claiming import Content, Delivery
from deliveries.dispatch.wire import request_of
from deliveries.models import Endpoint
from deliveries.rotation import MOST_FORMER, RotationRefused, rotate, secrets_of, signers_of
from deliveries.signing import Signature, key_of, new_secret
from ledger.managers.operation import Claimed
from tests.support.deliveries import endpoint

URL = "http://127.0.0.1:9/"
HOUR = timedelta(hours=1)
LATER = timedelta(hours=24)

pytestmark = pytest.mark.usefixtures("db")


def fresh(one: Endpoint) -> Endpoint:
    return Endpoint.objects.get(pk=one.endpoint_id)


def now() -> datetime:
    return datetime.now(UTC)


def replaced(one: Endpoint, secret: str | None = None, **how: object) -> str:
    made = rotate(one.endpoint_id, secret=secret, **how)  # type: ignore[arg-type]
    assert made is not None and made.settled
    return made.secret


def signed(one: Endpoint, at: datetime, body: bytes = b'{"n":1}') -> dict[str, str]:
    """The headers of a delivery that is sent at a moment."""
    claim = Claimed(
        operation_key=1, run_id=uuid.uuid4(), task_id=uuid.uuid4(), tenant_id=one.tenant_id,
        endpoint_id=one.endpoint_id, request_ref=uuid.uuid4(), request_digest=b"", step_id="deliver", effect_version=1,
        status="dispatching", revision=1, attempts=1, ambiguous=False, first_dispatched_at=at, dispatched_at=at,
        epoch=1, expires_at=at + HOUR, run_revision=1,
    )  # fmt: skip
    began = time.monotonic()
    delivery = Delivery(claim, Content(uuid.uuid4(), None, "a", body, None, at, None), fresh(one), began, began + 30)
    return dict(request_of(delivery, now=began, timeout_ms=1000).headers)


def signers(header: str, headers: dict[str, str], body: bytes, secrets: dict[str, str]) -> list[str]:
    """By whom each signature of a header is, in order."""
    found = []
    for given in header.split(" "):
        for name, secret in secrets.items():
            if key_of(secret).sign(headers["webhook-id"], int(headers["webhook-timestamp"]), body) == given:
                found.append(name)
    return found


def test_a_delivery_is_signed_by_the_current_secret_and_then_by_the_former_ones_newest_first(tenant: str) -> None:
    one, first = endpoint(tenant, URL)
    second, third = replaced(one), replaced(one)
    secrets = {"first": first, "second": second, "third": third}
    headers = signed(one, now())
    assert signers(headers["webhook-signature"], headers, b'{"n":1}', secrets) == ["third", "second", "first"]


def test_former_secrets_count_until_their_end_and_sign_a_minute_longer(tenant: str) -> None:
    one, first = endpoint(tenant, URL)
    second = replaced(one, overlap=HOUR)
    (entry,) = fresh(one).former_secrets
    end = datetime.fromisoformat(entry["until"])
    assert end.utcoffset() == timedelta(0)
    tick = timedelta(milliseconds=1)
    both, alone = (key_of(second), key_of(first)), (key_of(second),)
    assert secrets_of(fresh(one), end - tick) == both
    assert secrets_of(fresh(one), end) == alone
    assert signers_of(fresh(one), end + timedelta(seconds=59)) == both
    assert signers_of(fresh(one), end + timedelta(seconds=60)) == alone
    headers = signed(one, end + timedelta(minutes=2))
    assert " " not in headers["webhook-signature"]


def test_the_overlap_is_a_day_unless_it_is_said(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    made = rotate(one.endpoint_id)
    assert made is not None and made.former_until is not None
    assert abs(made.former_until - now() - LATER) < timedelta(minutes=1)
    assert datetime.fromisoformat(fresh(one).former_secrets[0]["until"]) == made.former_until


def test_without_an_overlap_every_former_secret_stops_at_once(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    replaced(one)
    made = rotate(one.endpoint_id, overlap=timedelta(0))
    assert made is not None and made.former_until is None
    assert fresh(one).former_secrets == []
    assert secrets_of(fresh(one), now()) == (key_of(made.secret),)


def test_what_is_over_is_dropped_at_the_next_rotation(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    replaced(one)
    past = {"sealed": "0.AAAA", "until": (now() - HOUR).isoformat()}
    Endpoint.objects.filter(pk=one.pk).update(former_secrets=[*fresh(one).former_secrets, past])
    assert len(secrets_of(fresh(one), now())) == 2, "what is over need not even open"
    replaced(one)
    assert len(fresh(one).former_secrets) == 2
    assert past not in fresh(one).former_secrets


def test_there_are_at_most_nine_former_secrets_and_a_tenth_is_refused_with_what_to_do(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    for _ in range(MOST_FORMER):
        replaced(one)
    before = fresh(one)
    assert len(signed(one, now())["webhook-signature"].split(" ")) == 10
    with pytest.raises(
        RotationRefused, match=r"9 former secrets .* room again at 20\d\d-.*without an overlap"
    ) as caught:
        rotate(one.endpoint_id)
    assert caught.value.field is None
    assert (fresh(one).secret_sealed, fresh(one).former_secrets) == (before.secret_sealed, before.former_secrets)
    replaced(one, overlap=timedelta(0))
    replaced(one)


@pytest.mark.parametrize("overlap", [timedelta(seconds=-1), timedelta(hours=720, seconds=1)])
def test_an_overlap_out_of_bounds_is_refused(tenant: str, overlap: timedelta) -> None:
    one, _ = endpoint(tenant, URL)
    with pytest.raises(RotationRefused, match="from 0 to 720") as caught:
        rotate(one.endpoint_id, overlap=overlap)
    assert caught.value.field == "overlap_hours"


def test_ones_own_secret_is_taken_and_the_same_call_may_be_made_again(tenant: str) -> None:
    one, first = endpoint(tenant, URL)
    own = new_secret()
    assert replaced(one, own) == own
    before = fresh(one)
    assert replaced(one, own) == own
    assert (fresh(one).secret_sealed, fresh(one).former_secrets) == (before.secret_sealed, before.former_secrets)
    assert secrets_of(fresh(one), now()) == (key_of(own), key_of(first))


def test_ones_own_secret_that_is_current_may_be_left_alone_at_once(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    own = new_secret()
    replaced(one, own)
    made = rotate(one.endpoint_id, secret=own, overlap=timedelta(0))
    assert made is not None and made.former_until is None
    assert secrets_of(fresh(one), now()) == (key_of(own),)


def test_a_secret_that_has_just_ended_keeps_its_last_minute_through_a_rotation(tenant: str) -> None:
    one, first = endpoint(tenant, URL)
    second = replaced(one)
    ended = [{**entry, "until": (now() - timedelta(seconds=5)).isoformat()} for entry in fresh(one).former_secrets]
    Endpoint.objects.filter(pk=one.pk).update(former_secrets=ended)
    third = replaced(one)
    assert secrets_of(fresh(one), now()) == (key_of(third), key_of(second))
    assert signers_of(fresh(one), now()) == (key_of(third), key_of(second), key_of(first))


def test_a_former_secret_that_does_not_open_is_said_and_ended_without_an_overlap(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    damaged = [{"sealed": "0123456789ab.AAAA", "until": (now() + HOUR).isoformat()}]
    Endpoint.objects.filter(pk=one.pk).update(former_secrets=damaged)
    for own in (None, new_secret()):
        with pytest.raises(RotationRefused, match="without an overlap"):
            rotate(one.endpoint_id, secret=own)
    replaced(one, overlap=timedelta(0))
    assert len(secrets_of(fresh(one), now())) == 1


def test_a_former_secret_that_becomes_current_again_signs_once(tenant: str) -> None:
    one, first = endpoint(tenant, URL)
    second = replaced(one)
    replaced(one, first)
    assert secrets_of(fresh(one), now()) == (key_of(first), key_of(second))


def test_what_is_no_secret_is_refused_without_being_repeated(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    with pytest.raises(RotationRefused) as caught:
        rotate(one.endpoint_id, secret="whsec_this-is-not-one")
    assert caught.value.field == "secret"
    assert "this-is" not in str(caught.value)


@pytest.mark.parametrize("kinds", [(Signature.V1, Signature.V1A), (Signature.V1A, Signature.V1)])
def test_the_kind_may_change_and_for_the_overlap_both_kinds_are_signed(
    tenant: str, kinds: tuple[Signature, Signature]
) -> None:
    one, _ = endpoint(tenant, URL)
    replaced(one, signature=kinds[0], overlap=timedelta(0))
    same = rotate(one.endpoint_id)
    assert same is not None and key_of(same.secret).signature is kinds[0], "the kind stays unless it is said"
    changed = rotate(one.endpoint_id, signature=kinds[1])
    assert changed is not None
    assert (changed.public_key is None) is (kinds[1] is Signature.V1)
    header = signed(one, now())["webhook-signature"]
    assert [given.partition(",")[0] for given in header.split(" ")] == [kinds[1], kinds[0], kinds[0]]


def test_a_kind_that_is_not_the_secrets_own_is_refused(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    with pytest.raises(RotationRefused) as caught:
        rotate(one.endpoint_id, secret=new_secret(), signature=Signature.V1A)
    assert caught.value.field == "signature"


def test_what_was_rotated_shows_no_secret(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    made = rotate(one.endpoint_id)
    assert made is not None
    assert made.secret not in f"{made!r} {made!s}"
    stored = fresh(one)
    assert made.secret[6:20] not in f"{stored.secret_sealed} {stored.former_secrets} {stored!r}"


def test_an_endpoint_that_is_not_there_or_was_deleted_has_no_secret_to_replace(tenant: str) -> None:
    assert rotate(uuid.uuid4()) is None
    one, _ = endpoint(tenant, URL)
    endpoints.delete(tenant, one.endpoint_id)
    assert rotate(one.endpoint_id) is None


def at_once(*works: Callable[[], object]) -> None:
    gate = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            gate.wait(10)
            work()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_of_several_rotations_at_once_none_is_lost(tenant: str) -> None:
    one, first = endpoint(tenant, URL)
    made: list[str] = []
    at_once(*[lambda: made.append(replaced(one))] * 6)
    ring = secrets_of(fresh(one), now())
    assert len(made) == 6
    assert set(ring) == {key_of(text) for text in (first, *made)}
    assert ring[-1] == key_of(first)
    # The current one is the last of those that were made.
    ends = [datetime.fromisoformat(entry["until"]) for entry in fresh(one).former_secrets]
    assert ends == sorted(ends, reverse=True)


def test_a_secret_that_does_not_open_is_replaced_only_at_once(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    with override_settings(SECRET_KEY="another key of the tests " + "9" * 40):
        Endpoint.objects.filter(pk=one.pk).update(secret_sealed=sealing.seal(new_secret(), f"endpoint:{one.pk}"))
    with pytest.raises(RotationRefused, match="RELAY_SECRET_KEY_FALLBACKS") as caught:
        rotate(one.endpoint_id)
    assert caught.value.field is None
    with pytest.raises(RotationRefused, match="is required"):
        rotate(one.endpoint_id, overlap=timedelta(0))
    made = rotate(one.endpoint_id, overlap=timedelta(0), signature=Signature.V1)
    assert made is not None
    assert secrets_of(fresh(one), now()) == (key_of(made.secret),)


def test_former_secrets_that_are_damaged_mean_that_nothing_is_signed(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    later = (now() + HOUR).isoformat()
    for damaged in (
        [{"sealed": "0.AAAA", "until": later}],
        [{"sealed": "0.AAAA"}],
        [{"sealed": "0.AAAA", "until": "soon"}],
        [{"sealed": "0.AAAA", "until": "2099-01-01T00:00:00"}],
        ["x"],
        {"a": 1},
    ):
        Endpoint.objects.filter(pk=one.pk).update(former_secrets=damaged)
        with pytest.raises(sealing.SealBroken):
            secrets_of(fresh(one), now())


def test_the_most_that_is_signed_is_the_most_that_is_looked_at() -> None:
    assert rotation.MOST_FORMER + 1 == signing.MOST_SIGNATURES == 10
