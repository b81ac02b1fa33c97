"""`relay event-types …`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relay.cli.endpoints import as_json
from relay.cli.session import Limit, Session, UsageError, command, content
from relay.client.configuration import EventType

app = typer.Typer(help="What types of events mean, and their JSON Schemas.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="As invoice.paid.")]
Description = Annotated[str | None, typer.Option("--description")]
Schema = Annotated[str | None, typer.Option("--schema", metavar="JSON|@FILE|-", help="A JSON Schema of the data.")]
Global = Annotated[bool, typer.Option("--global", help="The one of every tenant; for an operator's key.")]
Deprecated = Annotated[bool | None, typer.Option("--deprecated/--not-deprecated", help="Is it on its way out?")]


@command(app, "list")
def list_types(
    session: Session,
    archived: Annotated[bool, typer.Option("--archived", help="Also archived ones.")] = False,
    limit: Limit = 100,
) -> None:
    """List event types, by name."""
    rows = list(session.relay.event_types.list(limit=limit, archived="all" if archived else None))
    if session.json:
        session.out.document(rows)
        return
    session.out.table(
        ("name", "state", "schema", "description"), [(row.name, _state(row), row.schema is not None, row.description)
        for row in rows], empty="There are none.",
    )  # fmt: skip


@command(app, "create")
def create(
    session: Session,
    name: Name,
    description: Description = None,
    schema: Schema = None,
    deprecated: Deprecated = None,
    every_tenant: Global = False,
) -> None:
    """Describe an event type."""
    fields = _fields(description, schema, deprecated)
    _told(session, session.relay.event_types.create(name, every_tenant=every_tenant, **fields))


@command(app, "show")
def show(session: Session, name: Name) -> None:
    """Show an event type."""
    _told(session, session.relay.event_types.get(name))


@command(app, "update")
def update(
    session: Session,
    name: Name,
    description: Description = None,
    schema: Schema = None,
    deprecated: Deprecated = None,
    every_tenant: Global = False,
) -> None:
    """Change what is named, and nothing else. `--schema null` takes the schema away."""
    changes = _fields(description, schema, deprecated)
    if not changes:
        raise UsageError("Say what to change.")
    _told(session, session.relay.event_types.update(name, every_tenant=every_tenant, **changes))


@command(app, "archive")
def archive(session: Session, name: Name, every_tenant: Global = False) -> None:
    """Accept no event of the type from now on."""
    _told(session, session.relay.event_types.archive(name, every_tenant=every_tenant))


@command(app, "unarchive")
def unarchive(session: Session, name: Name, every_tenant: Global = False) -> None:
    """Accept events of the type again."""
    _told(session, session.relay.event_types.unarchive(name, every_tenant=every_tenant))


def _fields(description: str | None, schema: str | None, deprecated: bool | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if description is not None:
        fields["description"] = description
    if schema is not None:
        fields["schema"] = as_json(content(schema), "--schema")
    if deprecated is not None:
        fields["deprecated"] = deprecated
    return fields


def _state(row: EventType) -> str:
    if row.archived_at is not None:
        return "archived"
    return "deprecated" if row.deprecated else "in use"


def _told(session: Session, found: EventType) -> None:
    if session.json:
        session.out.document(found)
        return
    session.out.fields(
        [
            ("name", found.name),
            ("state", _state(found)),
            ("of", "every tenant" if found.every_tenant else "this tenant"),
            ("description", found.description),
            ("schema", found.schema),
            ("archived", found.archived_at),
            ("made", found.created_at),
            ("changed", found.updated_at),
        ]
    )
