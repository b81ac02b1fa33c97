"""What producers submit is what receivers get, byte for byte; and what cannot be kept so is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from deliveries.models import Event, EventType
from tests.submitting.corpus import CORPUS, MEGABYTE, Case
from tests.submitting.producer import JSON, LINES, Producer
from tests.support import deliveries
from tests.support.sink import Sink
from tests.support.waiting import wait_until
from tests.support.web import Web

pytestmark = pytest.mark.usefixtures("consumer")

DELIVERED_S = 60.0
KEPT = [case for case in CORPUS if case.kept is not None]
REFUSED = [case for case in CORPUS if case.kept is None]
DEPTHS = (99, 300, 500, 700, 800, 850, 900, 950, 980, 1_000, 1_500, 5_000)


def body_of(case: Case, kind: str = "corpus") -> bytes:
    return b'{"type":"%s","data":%s}' % (kind.encode(), case.written)


def one_line(cases: list[Case]) -> list[Case]:
    return [case for case in cases if b"\n" not in case.written]


class Receiving:
    """Receivers of everything: one plain, and one with a filter that everything passes."""

    PATHS = ("/plain", "/filtered")

    def __init__(self, sink: Sink, tenant_id: str) -> None:
        self.sink = sink
        self.tenant_id = tenant_id
        url = sink.url.rstrip("/")
        deliveries.endpoint(tenant_id, f"{url}/plain", in_flight=64)
        deliveries.endpoint(tenant_id, f"{url}/filtered", in_flight=64, filter={"$not": {"$eq": "never"}})

    def check(self, wanted: dict[str, bytes]) -> None:
        """Wait for these events, by their ids, at both; and compare what arrived with what was submitted."""
        count = len(wanted) * len(self.PATHS)
        wait_until(lambda: len(self.sink.requests) >= count, DELIVERED_S, f"{count} requests")
        wait_until(lambda: not deliveries.unsettled(self.tenant_id), DELIVERED_S, "everything settled")
        arrived = {(request.path, request.event): request.body for request in self.sink.requests}
        assert len(self.sink.requests) == count
        assert arrived == {(path, event): payload for path in self.PATHS for event, payload in wanted.items()}


def accepted(answer: requests.Response) -> str:
    assert answer.status_code == 202, answer.text
    assert answer.json()["deliveries"] == len(Receiving.PATHS)
    return str(answer.json()["id"])


def items_of(answer: requests.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_what_is_submitted_alone_arrives_as_it_was(producer: Producer) -> None:
    with Sink() as sink:
        receiving = Receiving(sink, producer.tenant_id)
        wanted = {accepted(producer.event(body_of(case))): case.kept or b"" for case in KEPT}
        receiving.check(wanted)
    for event_id, payload in wanted.items():
        assert b'"data":' + payload in producer.read(event_id)


@pytest.mark.parametrize("kind", [JSON, LINES])
def test_what_is_submitted_in_a_batch_arrives_as_it_was(producer: Producer, kind: str) -> None:
    cases = KEPT if kind == JSON else one_line(KEPT)
    with Sink() as sink:
        receiving = Receiving(sink, producer.tenant_id)
        found = items_of(producer.batch([body_of(case) for case in cases], kind))
        assert [one["status"] for one in found] == [202] * len(cases)
        receiving.check({one["id"]: case.kept or b"" for one, case in zip(found, cases, strict=True)})


def test_what_cannot_be_kept_is_refused_with_the_reason_by_every_route(producer: Producer) -> None:
    with Sink() as sink:
        Receiving(sink, producer.tenant_id)
        for case in REFUSED:
            answer = producer.event(body_of(case))
            assert answer.status_code in {400, 413}, (case.name, answer.text)
            assert case.reason in answer.json()["detail"], case.name
        found = items_of(producer.batch([body_of(case) for case in REFUSED], LINES))
        assert len(found) == len(REFUSED)
        for one, case in zip(found, REFUSED, strict=True):
            assert one["status"] in {400, 413}, case.name
            assert case.reason in one["error"]["detail"], case.name
        for case in REFUSED:
            answer = producer.batch([body_of(case)])
            said = items_of(answer)[0]["error"] if answer.status_code == 200 else answer.json()
            assert case.reason in said["detail"], case.name
        assert not Event.objects.filter(tenant_id=producer.tenant_id).exists()
        assert not sink.requests


def test_a_schema_of_the_type_changes_no_byte(producer: Producer) -> None:
    EventType.objects.create(tenant_id=producer.tenant_id, name="described", schema={"not": {"const": "never"}})
    with Sink() as sink:
        receiving = Receiving(sink, producer.tenant_id)
        wanted: dict[str, bytes] = {}
        for case in KEPT:
            answer = producer.event(body_of(case, "described"))
            if case.judgeable:
                wanted[accepted(answer)] = case.kept or b""
            else:
                assert answer.status_code == 422, (case.name, answer.text)
                assert answer.json()["errors"][0]["field"] == "data"
        receiving.check(wanted)
    assert producer.event(b'{"type":"described","data":"never"}').status_code == 422, "the schema is asked at all"


@pytest.mark.parametrize("opened", [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
def test_however_deep_it_is_it_is_kept_or_refused(producer: Producer, opened: tuple[bytes, bytes]) -> None:
    payloads = [opened[0] * depth + b"1" + opened[1] * depth for depth in DEPTHS]
    with Sink() as sink:
        receiving = Receiving(sink, producer.tenant_id)
        wanted: dict[str, bytes] = {}
        verdicts = []
        for payload in payloads:
            body = b'{"type":"deep","data":%s}' % payload
            answer = producer.event(body)
            line = items_of(producer.batch([body], LINES))[0]
            array = producer.batch([body])
            for said in (answer.json(), line, *(items_of(array) if array.status_code == 200 else [])):
                if "id" in said:
                    wanted[said["id"]] = payload
            verdicts.append({answer.status_code, line["status"], array.status_code})
        assert verdicts[0] == {202, 200}
        assert verdicts[-1] == {400}
        assert set().union(*verdicts) == {200, 202, 400}
        receiving.check(wanted)


@pytest.mark.parametrize("how", ["alone", JSON, LINES])
def test_a_megabyte_of_escapes_arrives_where_so_much_is_accepted(tenant: str, how: str) -> None:
    with Sink() as sink, Web(RELAY_MAX_PAYLOAD_BYTES=str(len(MEGABYTE))) as raised:
        producer = Producer(raised.url, tenant)
        receiving = Receiving(sink, tenant)
        bodies = [
            b'{"type":"corpus","data":%s}' % payload for payload in (MEGABYTE, MEGABYTE + b" ", MEGABYTE[:-1] + b'A"')
        ]
        if how == "alone":
            answers = [producer.event(body) for body in bodies]
            assert [answer.status_code for answer in answers] == [202, 202, 413]
            ids = [answer.json()["id"] for answer in answers[:2]]
        else:
            found = items_of(producer.batch(bodies, how))
            assert [one["status"] for one in found] == [202, 202, 413]
            ids = [one["id"] for one in found[:2]]
        receiving.check(dict.fromkeys(ids, MEGABYTE))
