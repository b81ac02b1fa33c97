"""`manage.py rotate_secret_key`: what is stored is sealed anew under the current key, beside a running system."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django.fixtures import Settings

from deliveries import ids, resealing, rotation, sealing
from deliveries.models import Endpoint
from deliveries.sealing import seal, unseal
from deliveries.signing import key_of
from tests.support.deliveries import endpoint

pytestmark = pytest.mark.usefixtures("emptied")

URL = "http://127.0.0.1:9/"
OLD, NEW, OTHER = (f"key of the tests, number {number} " + str(number) * 40 for number in (1, 2, 3))
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def under_the_old_key(settings: Settings) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, []


def now_under(settings: Settings, key: str, *fallbacks: str) -> str:
    """The ring from now on; the id of the key that seals."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = key, list(fallbacks)
    return sealing.key_ids()[0]


def whole(tenant: str) -> tuple[Endpoint, dict[str, str]]:
    """An endpoint with something in every place where secrets are, and what that is."""
    one, secret = endpoint(tenant, URL)
    row = f"endpoint:{one.pk}"
    plain = {":headers": '{"x-token": "a"}', ":auth": '{"password": "b"}', ":client_key": "PEM " + "k" * 2000}
    Endpoint.objects.filter(pk=one.pk).update(
        secret_headers_sealed=seal(plain[":headers"], row + ":headers"),
        auth_sealed=seal(plain[":auth"], row + ":auth"),
        client_key_sealed=seal(plain[":client_key"], row + ":client_key"),
    )
    made = rotation.rotate(one.endpoint_id, overlap=HOUR)
    assert made is not None
    return fresh(one), {"": made.secret, "former": secret, **plain}


def fresh(one: Endpoint) -> Endpoint:
    return Endpoint.objects.get(pk=one.pk)


def opened(one: Endpoint) -> dict[str, str]:
    row = f"endpoint:{one.pk}"
    (former,) = one.former_secrets
    return {
        "": unseal(one.secret_sealed, row),
        "former": unseal(former["sealed"], row),
        ":headers": unseal(one.secret_headers_sealed, row + ":headers"),
        ":auth": unseal(one.auth_sealed, row + ":auth"),
        ":client_key": unseal(one.client_key_sealed, row + ":client_key"),
    }


def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, what it says as JSON, and what it says beside."""
    said, beside = StringIO(), StringIO()
    try:
        call_command("rotate_secret_key", "--json", *arguments, stdout=said, stderr=beside)
    except SystemExit as ended:
        return int(ended.code or 0), json.loads(said.getvalue()), beside.getvalue()
    return 0, json.loads(said.getvalue()), beside.getvalue()


def test_everything_is_sealed_anew_and_then_needs_no_former_key(tenant: str, settings: Settings) -> None:
    found = [whole(tenant) for _ in range(7)]
    new = now_under(settings, NEW, OLD)
    before = {one.pk: fresh(one) for one, _ in found}
    code, said, _ = run("--batch", "3")
    assert code == 0
    assert (said["endpoints_resealed"], said["left"]) == (7, 0)
    assert said["keys"] == {new: {"tokens": 35, "endpoints": 7}}
    now_under(settings, NEW)
    for one, plain in found:
        after = fresh(one)
        assert opened(after) == plain
        assert after.former_secrets[0]["until"] == before[one.pk].former_secrets[0]["until"]
        assert after.updated_at == before[one.pk].updated_at, "nobody changed what the endpoint is"


def test_a_dry_run_counts_and_changes_nothing(tenant: str, settings: Settings) -> None:
    one, _ = whole(tenant)
    old = sealing.key_ids()[0]
    now_under(settings, NEW, OLD)
    code, said, _ = run("--dry-run")
    assert (code, said["left"], said["endpoints_resealed"]) == (0, 5, 0)
    assert said["keys"] == {old: {"tokens": 5, "endpoints": 1}}
    assert fresh(one).secret_sealed == one.secret_sealed


def test_a_second_run_has_nothing_to_do(tenant: str, settings: Settings) -> None:
    one, _ = whole(tenant)
    now_under(settings, NEW, OLD)
    run()
    after = fresh(one)
    code, said, _ = run()
    assert (code, said["endpoints_resealed"]) == (0, 0)
    assert fresh(one).secret_sealed == after.secret_sealed


def test_it_goes_on_where_it_was_broken_off(tenant: str, settings: Settings) -> None:
    for _ in range(5):
        whole(tenant)
    now_under(settings, NEW, OLD)
    assert resealing.reseal_stretch(resealing.FIRST, batch=2).resealed == 2
    assert run()[1]["endpoints_resealed"] == 3


def test_what_does_not_open_is_left_named_and_ends_with_1(tenant: str, settings: Settings) -> None:
    lost, _ = whole(tenant)
    now_under(settings, OTHER)
    mended, plain = whole(tenant)
    new = now_under(settings, NEW, OTHER)
    code, said, beside = run()
    assert (code, said["endpoints_unopened"], said["left"]) == (1, 1, 5)
    assert ids.render(ids.ENDPOINT, lost.endpoint_id) in beside
    assert fresh(lost).secret_sealed == lost.secret_sealed
    assert opened(fresh(mended)) == plain
    assert said["keys"][new]["endpoints"] == 1


def test_a_damaged_part_does_not_keep_the_others_from_being_sealed_anew(tenant: str, settings: Settings) -> None:
    one, plain = whole(tenant)
    Endpoint.objects.filter(pk=one.pk).update(auth_sealed="no token at all")
    new = now_under(settings, NEW, OLD)
    code, said, beside = run()
    assert (code, said["left"], said["keys"][""]["tokens"]) == (1, 1, 1)
    assert said["keys"][new]["tokens"] == 4
    assert "no token" not in json.dumps(said) + beside
    assert unseal(fresh(one).secret_sealed, f"endpoint:{one.pk}") == plain[""]


def test_former_secrets_whose_time_is_over_need_not_open(tenant: str, settings: Settings) -> None:
    one, _ = whole(tenant)
    past = (datetime.now(UTC) - HOUR).isoformat()
    Endpoint.objects.filter(pk=one.pk).update(
        former_secrets=[*one.former_secrets, {"sealed": "0123456789ab.AAAA", "until": past}]
    )
    now_under(settings, NEW, OLD)
    code, said, _ = run()
    assert (code, said["left"]) == (0, 0)
    assert len(fresh(one).former_secrets) == 1


def test_a_rotation_in_between_is_not_undone(tenant: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    one, plain = whole(tenant)
    now_under(settings, NEW, OLD)
    made: list[str] = []
    changes = resealing._changes

    def rotated_meanwhile(row: resealing._Stale) -> Any:
        if not made:
            # The row was read; before it is written somebody else replaces the secret, and commits.
            def rotate() -> None:
                try:
                    answer = rotation.rotate(one.endpoint_id, overlap=HOUR, patience_s=0)
                    assert answer is not None
                    made.append(answer.secret)
                finally:
                    connections.close_all()

            rival = threading.Thread(target=rotate)
            rival.start()
            rival.join(20)
        return changes(row)

    monkeypatch.setattr(resealing, "_changes", rotated_meanwhile)
    code, said, _ = run()
    assert (code, said["left"]) == (0, 0)
    now_under(settings, NEW)
    ring = rotation.secrets_of(fresh(one), datetime.now(UTC))
    assert ring == tuple(key_of(text) for text in (made[0], plain[""], plain["former"]))
    assert unseal(fresh(one).client_key_sealed, f"endpoint:{one.pk}:client_key") == plain[":client_key"]


def test_no_secret_is_said(tenant: str, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    one, plain = whole(tenant)
    now_under(settings, NEW, OLD)
    said = StringIO()
    call_command("rotate_secret_key", stdout=said)
    shown = said.getvalue() + "".join(capsys.readouterr())
    assert "take them out of RELAY_SECRET_KEY_FALLBACKS" in shown
    for secret in (*plain.values(), OLD, NEW, fresh(one).secret_sealed, one.secret_sealed):
        assert secret[14:40] not in shown
