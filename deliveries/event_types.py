"""Event types: what is known of a type, and whether an event keeps to it.

A type may be a tenant's own or global; the tenant's own hides the global one of its name. Its schema is JSON Schema
(drafts 4 to 2020-12, 2020-12 unless `$schema` says otherwise), judged by `jsonschema-rs`: nothing is ever fetched for a
`$ref`, and patterns are matched in linear time. What a schema may cost is bounded when it is saved (`LARGEST`,
`MOST_PARTS`), so judging takes at most seconds whatever the payload is.

What is known is remembered in this process for `REMEMBERED_FOR` seconds: so long after a change another process may
still judge by the old state.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast
from uuid import UUID

import jsonschema_rs
from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from deliveries.models import EventType, Tenant, UnknownTypes

LARGEST = 65_536
"""Bytes of a schema as JSON."""
MOST_PARTS = 5_000
"""Subschemas of a schema once its references are followed: a few lines of them can come to millions."""
DEEPEST = 64
REMEMBERED_FOR = 2.0
REMEMBERED_AT_MOST = 4_096

_ROUND = {"$ref", "$dynamicRef", "$recursiveRef"}


class SchemaRefused(ValueError):
    """It is no schema that payloads can be judged by. The message says where and why."""


class Problem(NamedTuple):
    """Why an event is refused: `type`, or a place in `data`."""

    field: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What is remembered of a type; a type that nobody described is remembered as None."""

    event_type_id: UUID
    archived: bool
    validator: jsonschema_rs.Validator | None


_types: dict[tuple[str, str], tuple[_Known | None, float]] = {}
_rules: dict[str, tuple[str, float]] = {}
_validators: dict[bytes, jsonschema_rs.Validator] = {}


def visible(tenant_id: str) -> QuerySet[EventType]:
    """The types that a tenant's events may be of: its own, and the global ones that none of its own hides."""
    own = EventType.objects.filter(tenant_id=tenant_id, name=OuterRef("name"))
    return EventType.objects.filter(Q(tenant_id=tenant_id) | Q(tenant=None) & ~Exists(own))


def forget() -> None:
    """Forget what this process remembers, because something was changed here."""
    _types.clear()
    _rules.clear()


def check(schema: Any) -> None:
    """`SchemaRefused` when `schema` is not one that may be saved."""
    if not isinstance(schema, dict):
        raise SchemaRefused("must be an object")
    _validator(_text(schema))


def refusals(tenant_id: str, events: Sequence[tuple[str, bytes]]) -> list[Problem | None]:
    """For each (type, payload), why it is not accepted, or None. The payloads are well-formed JSON."""
    known = _look_up(tenant_id, {name for name, _ in events})
    return [_refusal(tenant_id, known[name], name, payload) for name, payload in events]


def _refusal(tenant_id: str, known: _Known | None, name: str, payload: bytes) -> Problem | None:
    if known is None:
        if _rule(tenant_id) == UnknownTypes.REFUSE:
            return Problem("type", f"nobody described {name}, and events of unknown types are not accepted here")
        return None
    if known.archived:
        return Problem("type", f"{name} is archived: no event of it is accepted any more")
    return None if known.validator is None else _fault(known.validator, payload)


def _fault(validator: jsonschema_rs.Validator, payload: bytes) -> Problem | None:
    """The first thing in the payload that the schema forbids."""
    try:
        error = next(iter(validator.iter_errors(json.loads(payload))), None)
    except RecursionError:
        return Problem("data", "is nested too deeply to be judged by the schema of its type")
    except UnicodeEncodeError:
        return Problem("data", "holds half of a surrogate pair, which the schema of its type cannot judge")
    except ValueError:  # Python reads integers of at most 4,300 digits
        return Problem("data", "holds a number that the schema of its type cannot judge")
    if error is None:
        return None
    place = "".join(f".{step}" for step in error.instance_path)
    # Its message quotes the payload, which has no place in logs of errors.
    rule = "/".join(map(str, error.schema_path)) or "the schema"
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        rule += f": {error.kind.property} is missing"  # its name is the schema's
    return Problem(f"data{place}"[:200], f"does not keep to the schema of its type: {rule[:200]}")


def _look_up(tenant_id: str, names: Iterable[str]) -> Mapping[str, _Known | None]:
    """What is known of these types; one query for those that are not remembered, and one for new schemas."""
    now = time.monotonic()
    known: dict[str, _Known | None] = {}
    missing = []
    for name in names:
        remembered = _types.get((tenant_id, name))
        if remembered is not None and now < remembered[1]:
            known[name] = remembered[0]
        else:
            missing.append(name)
    if not missing:
        return known
    found = dict.fromkeys(missing, cast("_Known | None", None))
    # Ascending with the tenant's own last, so that it stays.
    rows = EventType.objects.filter(Q(tenant_id=tenant_id) | Q(tenant=None), name__in=missing)
    for row in rows.order_by("name", F("tenant").asc(nulls_first=True)):
        validator = None if row.schema is None else _validator(_text(row.schema))
        found[row.name] = _Known(row.event_type_id, row.archived_at is not None, validator)
    if len(_types) + len(found) > REMEMBERED_AT_MOST:
        _types.clear()
    for name, one in found.items():
        _types[tenant_id, name] = one, now + REMEMBERED_FOR
    return known | found


def _rule(tenant_id: str) -> str:
    """What becomes of unknown types: the tenant's rule, or the deployment's."""
    now = time.monotonic()
    remembered = _rules.get(tenant_id)
    if remembered is None or now >= remembered[1]:
        own = Tenant.objects.filter(tenant_id=tenant_id).values_list("unknown_types", flat=True).first()
        if len(_rules) >= REMEMBERED_AT_MOST:
            _rules.clear()
        remembered = _rules[tenant_id] = own or settings.RELAY_UNKNOWN_TYPES, now + REMEMBERED_FOR
    return remembered[0]


def _text(schema: Any) -> str:
    try:
        text = json.dumps(schema, allow_nan=False, separators=(",", ":"))
    except RecursionError as deep:
        raise SchemaRefused("is nested too deeply") from deep
    except ValueError as strange:
        raise SchemaRefused("holds a number that JSON has no form for") from strange
    if len(text) > LARGEST:
        raise SchemaRefused(f"has more than {LARGEST} bytes")
    if "\\u0000" in text:
        raise SchemaRefused("holds a NUL character")
    return text


def _validator(text: str) -> jsonschema_rs.Validator:
    """The compiled schema, remembered by its content; `SchemaRefused` when it cannot be one."""
    digest = hashlib.sha256(text.encode()).digest()
    known = _validators.get(digest)
    if known is not None:
        return known
    schema = json.loads(text)
    _bound(schema)
    try:
        made = jsonschema_rs.validator_for(
            schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(size_limit=1_048_576)
        )
    except jsonschema_rs.ReferencingError as strange:
        raise SchemaRefused(f"has a $ref that leads nowhere: {strange}"[:300]) from strange
    except jsonschema_rs.ValidationError as strange:
        place = "/".join(map(str, strange.instance_path)) or "the schema itself"
        raise SchemaRefused(f"is no JSON Schema, at {place}: {strange.message}"[:300]) from strange
    except ValueError as strange:
        raise SchemaRefused(f"is no JSON Schema: {strange}"[:300]) from strange
    if len(_validators) >= REMEMBERED_AT_MOST // 4:
        _validators.clear()
    _validators[digest] = made
    return made


def _bound(schema: dict[str, Any]) -> None:
    """`SchemaRefused` when following its references comes to too many parts, or goes too deep.

    A reference into what is being followed costs no more: the library remembers what it has judged there.
    """
    costs: dict[str, int | Literal["open"]] = {}

    def cost(part: Any, depth: int) -> int:
        if depth > DEEPEST:
            raise SchemaRefused(f"goes more than {DEEPEST} deep, with its references followed")
        total = 1
        if isinstance(part, dict):
            for name, inner in part.items():
                total += follow(inner, depth) if name in _ROUND and isinstance(inner, str) else cost(inner, depth + 1)
        elif isinstance(part, list):
            total += sum(cost(inner, depth + 1) for inner in part)
        if total > MOST_PARTS:
            raise SchemaRefused(f"comes to more than {MOST_PARTS} parts, with its references followed")
        return total

    def follow(reference: str, depth: int) -> int:
        known = costs.get(reference)
        if known == "open":
            return 1
        if known is None:
            costs[reference] = "open"
            known = costs[reference] = cost(_target(schema, reference), depth + 1)
        return known

    try:
        cost(schema, 0)
    except RecursionError as deep:
        raise SchemaRefused("is nested too deeply") from deep


def _target(schema: Any, reference: str) -> Any:
    """What a reference inside the schema names: by JSON Pointer (RFC 6901), or by an anchor or an id."""
    if reference in {"#", ""}:
        return schema
    if not reference.startswith("#"):
        raise SchemaRefused(f"refers to {reference[:100]!r}: only references inside of it, #/…, are followed")
    if not reference.startswith("#/"):
        raise SchemaRefused(f"refers to {reference[:100]!r}: refer by a JSON Pointer, #/…")
    found = schema
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise SchemaRefused(f"refers to {reference[:100]!r}, which it does not hold") from None
    return found
