"""Operational webhooks: what Relay itself has to say, sent as events to endpoints that were made to hear it.

`tell` is called inside the transaction in which the thing happened, and so is stored with it or not at all (but what
is unknown for too long is found by a sweep); what is stored is delivered like any event. A tenant hears about itself
(`receives: operational`), the operator about every tenant (`operational_all`). Nothing is stored where nobody
listens, and nothing is told about the deliveries of these events themselves, so that none causes another.

Limits: who listens is remembered for `REMEMBERED_FOR` seconds in each process: a new endpoint may miss what happens in
the first of them. And an event is given up, with an error in the log, where the listeners' filters keep changing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from deliveries import ids
from deliveries.accepting import Accepted, FiltersChanging, NewEvent, accept, digest_of
from deliveries.models import Endpoint, Receives
from deliveries.queries import DELIVERIES
from deliveries.wake import notify

log = logging.getLogger("relay.operational")

REMEMBERED_FOR = 2.0
SOURCE = "relay"
KEY_MARK = "\x01"
"""Begins the idempotency keys of these events: a client's are printable, and so never the same."""
BATCH, STRETCHES = 500, 40


class Type(StrEnum):
    """What is told of."""

    ENDPOINT_DISABLED = "relay.endpoint.disabled"
    ENDPOINT_FAILING = "relay.endpoint.failing"
    ENDPOINT_RECOVERED = "relay.endpoint.recovered"
    DELIVERY_EXHAUSTED = "relay.delivery.exhausted"
    OPERATION_UNKNOWN = "relay.operation.unknown"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened in a tenant, once: `key` is its name among those of its type. Times in `data` are
    RFC 3339."""

    tenant_id: str
    type: Type
    key: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Listeners:
    """Tenants with endpoints that hear about themselves, and with some that hear about all."""

    own: frozenset[str]
    every: frozenset[str]


@dataclass(frozen=True, slots=True)
class _LongUnknown:
    walked: int
    walked_to: int
    operation_key: int | None
    operation_id: str | None
    tenant_id: str | None
    task_id: UUID | None
    endpoint_id: UUID | None
    event_id: UUID | None
    client_id: str | None
    event_type: str | None
    unknown_since: str | None
    attempts: int | None
    needs_a_person: bool | None
    key: str | None


_remembered: tuple[_Listeners, float] | None = None


def forget() -> None:
    """Look again who listens: something was changed in this process."""
    global _remembered
    _remembered = None


def listeners() -> _Listeners:
    """Who listens; looked up every `REMEMBERED_FOR` seconds."""
    global _remembered
    now = time.monotonic()
    if _remembered is None or now >= _remembered[1]:
        rows = Endpoint.objects.filter(enabled=True, deleted_at=None).exclude(receives=Receives.EVENTS)
        found = set(rows.order_by().values_list("tenant_id", "receives").distinct())
        every = frozenset(tenant for tenant, receives in found if receives == Receives.OPERATIONAL_ALL)
        _remembered = _Listeners(frozenset(tenant for tenant, _ in found), every), now + REMEMBERED_FOR
    return _remembered[0]


def heard(tenant_id: str) -> bool:
    """Whether anybody hears what is told about this tenant."""
    who = listeners()
    return bool(who.every) or tenant_id in who.own


def tell(occurrences: Iterable[Occurrence]) -> int:
    """Store what happened as events for whoever listens, in the current transaction; how many were new.

    It never fails its caller for what a listener's endpoint is like.
    """
    who = listeners()
    events = [event for one in occurrences for event in _events(one, who)]
    if not events:
        return 0
    try:
        answers = accept(events, [ids.time_ordered() for _ in events], [digest_of(event) for event in events])
    except FiltersChanging:
        log.error("%s operational events are lost: the filters of their endpoints kept changing", len(events))  # noqa: TRY400
        return 0
    new = sum(isinstance(answer, Accepted) and not answer.replayed for answer in answers)
    if new:
        notify()
    return new


def _events(one: Occurrence, who: _Listeners) -> list[NewEvent]:
    payload = json.dumps({**one.data, "tenant_id": one.tenant_id}, ensure_ascii=False).encode()
    key = f"{KEY_MARK}{one.type}:{one.key}"
    audiences = [(one.tenant_id, Receives.OPERATIONAL)] if one.tenant_id in who.own else []
    audiences += [(tenant, Receives.OPERATIONAL_ALL) for tenant in sorted(who.every - {one.tenant_id})]
    return [
        NewEvent(tenant, one.type, payload, source=SOURCE, idempotency_key=key, audience=audience)
        for tenant, audience in audiences
    ]


def endpoint(row: Endpoint, kind: Type, key: str, **data: Any) -> Occurrence:
    """Something that happened to an endpoint. Its URL is told without user and query, which may hold credentials."""
    address = row.url.partition("?")[0].partition("#")[0]
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    shown = f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
    name = ids.render(ids.ENDPOINT, row.endpoint_id)
    return Occurrence(row.tenant_id, kind, f"{name}:{key}", {"endpoint_id": name, "url": shown, **data})


def tell_long_unknown(after_s: int) -> int:
    """Tell of operations that have been unknown for longer than `after_s` seconds, once for each time that they came to
    be; how many were new. Bounded: `STRETCHES` short looks at the unknown ones in key order."""
    who = listeners()
    if not who.own:
        return 0
    told, after = 0, 0
    for _ in range(STRETCHES):
        rows = DELIVERIES["operational.long_unknown"].rows(
            _LongUnknown,
            {
                "after": after,
                "stretch": BATCH,
                "after_s": after_s,
                "prefix": f"{KEY_MARK}{Type.OPERATION_UNKNOWN}:",
                "tenants": sorted(who.own),
            },
        )
        told += tell(_long_unknown(rows))
        after = rows[0].walked_to
        if rows[0].walked < BATCH:
            break
    return told


def _long_unknown(rows: Sequence[_LongUnknown]) -> Iterable[Occurrence]:
    for row in rows:
        if row.operation_key is None:
            continue
        assert row.tenant_id and row.task_id and row.endpoint_id and row.event_id and row.key
        data = {
            "operation_id": row.operation_id,
            "delivery_id": ids.render(ids.DELIVERY, row.task_id),
            "event_id": row.client_id or ids.render(ids.EVENT, row.event_id),
            "event_type": row.event_type,
            "endpoint_id": ids.render(ids.ENDPOINT, row.endpoint_id),
            "attempts": row.attempts,
            "unknown_since": row.unknown_since,
            "needs_a_person": row.needs_a_person,
        }
        yield Occurrence(row.tenant_id, Type.OPERATION_UNKNOWN, row.key, data)
