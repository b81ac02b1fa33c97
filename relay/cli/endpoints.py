"""`relay endpoints …`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from relay.cli.sending import pairs
from relay.cli.session import Limit, Session, UsageError, Yes, command, content
from relay.cli.show import show_endpoint
from relay.client.configuration import Endpoint

app = typer.Typer(help="Who receives, and how.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ENDPOINT", help="ep_…")]
Url = Annotated[str | None, typer.Option("--to", metavar="URL", help="Where it receives.")]
Description = Annotated[str | None, typer.Option("--description")]
Types = Annotated[list[str] | None, typer.Option("--type", help="Event types it wants, as invoice.*; may be repeated.")]
Filter = Annotated[str | None, typer.Option("--filter", metavar="JSON|@FILE|-", help="What data must be like.")]
Headers = Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME: VALUE", help="Sent each time.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=JSON", help='Any other setting, as retry={"schedule": [5, 300]}.'),
]


@command(app, "list")
def list_endpoints(session: Session, limit: Limit = 50) -> None:
    """List endpoints, newest first."""
    rows = list(session.relay.endpoints.list(limit=limit))
    if session.json:
        session.out.document(rows)
        return
    session.out.table(
        ("endpoint", "state", "url", "types", "breaker", "last error"),
        [
            (
                row.id, "enabled" if row.enabled else "disabled", row.url, row.types or "all", row.health.breaker,
                row.health.last_error,
            )
            for row in rows
        ],
        empty="There are none: `relay endpoints create URL` makes one.",
    )  # fmt: skip


@command(app, "create")
def create(
    session: Session,
    url: Annotated[str, typer.Argument(metavar="URL", help="https, and not a private address.")],
    description: Description = None,
    type: Types = None,
    filter: Filter = None,
    header: Headers = None,
    public_key: Annotated[bool, typer.Option("--public-key", help="Sign with Ed25519 (v1a).")] = False,
    setting: Set = None,
) -> None:
    """Make an endpoint. Its signing secret is shown this once."""
    settings = _settings(description, type, filter, header, setting)
    if public_key:
        settings["signature"] = "v1a"
    _told(session, session.relay.endpoints.create(url, **settings))


@command(app, "show")
def show(session: Session, endpoint: Id) -> None:
    """Show an endpoint's settings, and how sending to it goes."""
    _told(session, session.relay.endpoints.get(endpoint))


@command(app, "update")
def update(
    session: Session,
    endpoint: Id,
    to: Url = None,
    description: Description = None,
    type: Types = None,
    filter: Filter = None,
    header: Headers = None,
    setting: Set = None,
    etag: Annotated[str | None, typer.Option("--etag", help="Only while it is this version.")] = None,
) -> None:
    """Change what is named, and nothing else."""
    changes = _settings(description, type, filter, header, setting)
    if to is not None:
        changes["url"] = to
    if not changes:
        raise UsageError("Say what to change.")
    _told(session, session.relay.endpoints.update(endpoint, etag=etag, **changes))


@command(app, "enable")
def enable(session: Session, endpoint: Id) -> None:
    """Send to an endpoint again, also what waits."""
    _changed(session, session.relay.endpoints.enable(endpoint))


@command(app, "disable")
def disable(
    session: Session,
    endpoint: Id,
    reason: Annotated[str | None, typer.Option("--reason", help="Why: shown with the endpoint.")] = None,
) -> None:
    """Send nothing more to an endpoint."""
    _changed(session, session.relay.endpoints.disable(endpoint, reason=reason))


@command(app, "test")
def send_test(
    session: Session,
    endpoint: Id,
    type: Annotated[str | None, typer.Option("--type", help="Else relay.test.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="JSON|@FILE|-")] = None,
) -> None:
    """Send a test event to an endpoint, and to nobody else."""
    event = {"type": type, "data": None if data is None else as_json(content(data), "--data")}
    sent = session.relay.endpoints.test(endpoint, **{name: value for name, value in event.items() if value is not None})
    if session.json:
        session.out.document(sent)
    else:
        session.out.say(f"It is on its way; `relay show {sent.delivery_id}` tells what becomes of it.")


@command(app, "verify")
def verify(session: Session, endpoint: Id) -> None:
    """Have an endpoint's URL answer a challenge, and enable it when it does."""
    _told(session, session.relay.endpoints.verify(endpoint))


@command(app, "rotate-secret")
def rotate_secret(
    session: Session,
    endpoint: Id,
    overlap_hours: Annotated[
        int | None, typer.Option("--overlap-hours", min=0, help="For so long both sign. 0: the old one leaked.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Replace an endpoint's signing secret. The new one is shown this once."""
    if overlap_hours == 0:
        session.sure(
            f"Receivers that know only the old secret of {endpoint} refuse everything at once. Go on?", yes=yes
        )
    how = {} if overlap_hours is None else {"overlap_hours": overlap_hours}
    made = session.relay.endpoints.rotate_secret(endpoint, **how)
    if session.json:
        session.out.document(made)
        return
    session.out.fields(
        [
            ("secret", made.secret),
            ("public key", made.public_key),
            ("question key", made.question_key),
            ("old one signs until", made.former_until),
        ]
    )


@command(app, "delete")
def delete(session: Session, endpoint: Id, yes: Yes = False) -> None:
    """Delete an endpoint; what was not sent to it yet is cancelled."""
    if not yes:
        found = session.relay.endpoints.get(endpoint)
        session.sure(f"Delete {found.id}, {found.url}?", yes=yes)
    session.relay.endpoints.delete(endpoint)
    if session.json:
        session.out.document({"id": endpoint, "deleted": True})
    else:
        session.out.say(f"{endpoint} is deleted.")


def _settings(
    description: str | None,
    types: list[str] | None,
    filter_: str | None,
    headers: list[str] | None,
    others: list[str] | None,
) -> dict[str, Any]:
    """The fields that were named."""
    given: dict[str, Any] = {
        "description": description,
        "types": types or None,
        "filter": None if filter_ is None else as_json(content(filter_), "--filter"),
        "headers": pairs(headers, ":", "--header"),
    }
    settings = {name: value for name, value in given.items() if value is not None}
    for name, text in (pairs(others, "=", "--set") or {}).items():
        settings[name] = as_json(text.encode(), f"--set {name}")
    return settings


def as_json(text: bytes, option: str) -> Any:
    """What it says; `UsageError` when it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as strange:
        raise UsageError(f"{option} is not JSON: {strange}.") from None


def _told(session: Session, endpoint: Endpoint) -> None:
    session.out.document(endpoint) if session.json else show_endpoint(session.out, endpoint)


def _changed(session: Session, endpoint: Endpoint) -> None:
    if session.json:
        session.out.document(endpoint)
    else:
        session.out.say(f"{endpoint.id} is {'enabled' if endpoint.enabled else 'disabled'}.")
