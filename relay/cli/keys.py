"""`relay keys …` and `relay tenants …`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relay.cli.session import Limit, Session, UsageError, Yes, command, since
from relay.cli.show import show_key
from relay.client.configuration import Key, Tenant

app = typer.Typer(help="Keys of the API.", no_args_is_help=True)
tenants = typer.Typer(
    help="Customers, each with endpoints and events of its own. For an operator's key.", no_args_is_help=True
)

Id = Annotated[str, typer.Argument(metavar="KEY", help="key_…")]
TenantId = Annotated[str, typer.Argument(metavar="TENANT")]
UnknownTypes = Annotated[
    str | None, typer.Option("--unknown-types", help="accept or refuse events of types nobody described.")
]


@command(app, "list")
def list_keys(session: Session, limit: Limit = 50) -> None:
    """List keys, newest first; never their text."""
    rows = list(session.relay.keys.list(limit=limit))
    if session.json:
        session.out.document(rows)
        return
    session.out.table(
        ("key", "name", "tenant", "state", "scopes", "used last"),
        [
            (
                row.id, row.name, row.tenant or "operator", "revoked" if row.revoked_at else "good", row.scopes,
                row.last_used_at,
            )
            for row in rows
        ],
        empty="There are none.",
    )  # fmt: skip


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    scope: Annotated[
        list[str], typer.Option("--scope", help="events:write, read, endpoints:write, operate, admin; may be repeated.")
    ],
    operator: Annotated[bool, typer.Option("--operator", help="For every tenant.")] = False,
    expires: Annotated[str | None, typer.Option("--expires", metavar="TIME", help="When it ends.")] = None,
) -> None:
    """Make a key, and show it this once."""
    ends = None if expires is None else since(expires)
    _told(session, session.relay.keys.create(name, scope, operator=operator, expires_at=ends))


@command(app, "show")
def show(session: Session, key_id: Id) -> None:
    """Show a key, without its text."""
    _told(session, session.relay.keys.get(key_id))


@command(app, "rotate")
def rotate(
    session: Session,
    key_id: Id,
    overlap_hours: Annotated[
        int | None, typer.Option("--overlap-hours", min=0, help="For so long the old one is still good; else 24.")
    ] = None,
) -> None:
    """Make another key in this one's place, and show it this once."""
    _told(session, session.relay.keys.rotate(key_id, overlap_hours=overlap_hours))


@command(app, "revoke")
def revoke(session: Session, key_id: Id, yes: Yes = False) -> None:
    """End a key for good."""
    if not yes:
        found = session.relay.keys.get(key_id)
        session.sure(f"Revoke {found.id}, {found.name}, for good?", yes=yes)
    session.relay.keys.revoke(key_id)
    if session.json:
        session.out.document({"id": key_id, "revoked": True})
    else:
        session.out.say(f"{key_id} is revoked.")


def _told(session: Session, key: Key) -> None:
    session.out.document(key) if session.json else show_key(session.out, key)


@command(tenants, "list")
def list_tenants(session: Session, limit: Limit = 100) -> None:
    """List tenants."""
    rows = list(session.relay.tenants.list(limit=limit))
    if session.json:
        session.out.document(rows)
    else:
        session.out.table(
            ("tenant", "name", "unknown types", "made"),
            [(row.id, row.name, row.unknown_types, row.created_at) for row in rows],
            empty="There are none.",
        )


@command(tenants, "create")
def create_tenant(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    id: Annotated[str | None, typer.Option("--id", help="Its id; else one is made.")] = None,
    unknown_types: UnknownTypes = None,
) -> None:
    """Make a tenant."""
    _told_tenant(session, session.relay.tenants.create(name, **_given(id=id, unknown_types=unknown_types)))


@command(tenants, "show")
def show_tenant(session: Session, tenant_id: TenantId) -> None:
    """Show a tenant."""
    _told_tenant(session, session.relay.tenants.get(tenant_id))


@command(tenants, "update")
def update_tenant(
    session: Session,
    tenant_id: TenantId,
    name: Annotated[str | None, typer.Option("--name")] = None,
    unknown_types: UnknownTypes = None,
) -> None:
    """Change what is named, and nothing else."""
    changes = _given(name=name, unknown_types=unknown_types)
    if not changes:
        raise UsageError("Say what to change.")
    _told_tenant(session, session.relay.tenants.update(tenant_id, **changes))


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _told_tenant(session: Session, tenant: Tenant) -> None:
    if session.json:
        session.out.document(tenant)
        return
    session.out.fields(
        [
            ("tenant", tenant.id),
            ("name", tenant.name),
            ("unknown types", tenant.unknown_types),
            ("made", tenant.created_at),
            ("changed", tenant.updated_at),
        ]
    )
