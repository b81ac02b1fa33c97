"""The public ids of events: the one that the producer chose, or `evt_` and the key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from deliveries import ids
from deliveries.models import Event

CLIENT_ID_FORM = r"[A-Za-z0-9_:~-]{1,128}"
CLIENT_ID_RULE = (
    "must be 1 to 128 characters of A-Z a-z 0-9 _ : ~ - and not of the form of Relay's own ids, evt_ and 32 "
    "hexadecimal digits"
)

_CLIENT_ID = re.compile(CLIENT_ID_FORM)
_OURS = re.compile(r"evt_[0-9a-f]{32}")


class Label(NamedTuple):
    """What is shown of an event where something else is shown."""

    id: str
    type: str


def may_be_chosen(text: str) -> bool:
    """Whether a producer may call its event this. No full stop: it would blur what is signed (Standard Webhooks,
    "Signature scheme")."""
    return _CLIENT_ID.fullmatch(text) is not None and _OURS.fullmatch(text) is None


def labels(event_ids: Iterable[UUID]) -> Mapping[UUID, Label]:
    """The public ids and types of these events, in one query."""
    wanted = set(event_ids)
    if not wanted:
        return {}
    rows = Event.objects.filter(event_id__in=wanted).only("event_id", "client_id", "type")
    return {row.event_id: Label(str(row), row.type) for row in rows}


def named(text: str) -> Q | None:
    """The condition for the event of this public id, to be joined with its tenant; None when it cannot be one's."""
    if _OURS.fullmatch(text):
        return Q(event_id=ids.parse(ids.EVENT, text))
    return Q(client_id=text) if _CLIENT_ID.fullmatch(text) else None
