"""For who receives: `relay listen` shows what arrives, `relay verify` checks a request that was saved."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from relay.cli.output import complain, note
from relay.cli.sending import pairs
from relay.cli.session import Session, Stopped, UsageError, command, content, sentence
from relay.cli.signals import until_stopped
from relay.cli.text import age_of
from relay.client import RelayError
from relay.client.configuration import Endpoint, EndpointItem
from relay.client.webhooks import TOLERANCE_S, BadSecret, WebhookVerificationError, verify
from relay.listener import Arrived, Listener

DESCRIPTION = "relay listen"
"""By which the endpoints that `listen` made are known again."""

Secret = Annotated[
    str | None,
    typer.Option(
        "--secret", envvar="RELAY_WEBHOOK_SECRET", help="whsec_…, or a public key, whpk_…", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    command(app, "listen")(listen)
    command(app, "verify")(check)


def listen(
    session: Session,
    port: Annotated[int, typer.Argument(metavar="PORT", min=1, max=65_535)] = 8010,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    seen_as: Annotated[
        str | None, typer.Option("--as", metavar="URL", help="How Relay reaches it, as through a tunnel.")
    ] = None,
    type: Annotated[list[str] | None, typer.Option("--type", help="Types it wants; may be repeated.")] = None,
    public_key: Annotated[bool, typer.Option("--public-key", help="Have it signed with Ed25519 (v1a).")] = False,
    secret: Secret = None,
) -> None:
    """Run a small receiver that checks signatures and shows what arrives. It makes its endpoint, and disables it at the
    end; with --secret it makes none, and needs no key."""
    url = seen_as or f"http://{host}:{port}/"
    if secret is not None:
        _must_be_key(secret)
    with until_stopped() as stopping:
        try:
            listener = Listener(port, lambda arrived: _show(session, arrived), host=host)
        except OSError as refused:
            raise Stopped(f"Cannot listen on {host} port {port}: {refused.strerror}.") from None
        with listener:
            if secret is not None:
                listener.key = secret
                note(f"Listening on {url}. Ctrl-C stops it.")
                listener.serve(stopping)
                return
            endpoint, listener.key = _opened(session, url, type or [], public_key=public_key)
            try:
                if endpoint.warning:
                    note(f"Nothing is sent to {url} at this moment: {endpoint.warning}")
                note(f"Listening on {url}. Ctrl-C stops it and disables its endpoint, {endpoint.id}.")
                listener.serve(stopping)
            finally:
                _close(session, endpoint)


def _opened(session: Session, url: str, types: list[str], *, public_key: bool) -> tuple[Endpoint, str]:
    """An endpoint of ours at `url`, enabled, and what verifies its signatures. One of an earlier time is taken again,
    with a new secret: the old one is not known any more."""
    endpoints = session.relay.endpoints
    kind = "v1a" if public_key else "v1"
    ours = next((one for one in endpoints.list() if _is_ours(one, url)), None)
    if ours is None:
        made = endpoints.create(url, description=DESCRIPTION, types=types, signature=kind)
        return made, made.public_key or str(made.secret)
    rotated = endpoints.rotate_secret(ours.id, overlap_hours=0, signature=kind)
    return endpoints.update(ours.id, enabled=True, types=types), rotated.public_key or rotated.secret


def _is_ours(endpoint: EndpointItem, url: str) -> bool:
    return endpoint.url == url and endpoint.description == DESCRIPTION


def _close(session: Session, endpoint: Endpoint) -> None:
    """Disable it, so that no event goes to a port where nobody listens."""
    try:
        session.relay.endpoints.update(endpoint.id, enabled=False)
    except RelayError as error:
        complain(f"relay: {sentence(error)} Its endpoint is still enabled: `relay endpoints disable {endpoint.id}`.")
        raise Stopped("The endpoint could not be disabled.") from None
    note("Its endpoint is disabled: events submitted from now on do not go to it. `relay listen` enables it again.")


def _show(session: Session, arrived: Arrived) -> None:
    if not session.json:
        session.out.say(arrived.text(), "" if arrived.problem is None else "red")
        return
    shown: dict[str, Any] = {
        "at": arrived.at,
        "id": arrived.id,
        "type": arrived.type,
        "verified": arrived.problem is None,
        "problem": arrived.problem,
        "headers": arrived.headers,
        "body": arrived.body.decode("utf-8", "replace"),
    }
    session.out.record(shown)


def check(
    session: Session,
    body: Annotated[str, typer.Argument(metavar="BODY|@FILE|-", help="Exactly as it came, to the byte.")],
    header: Annotated[
        list[str], typer.Option("--header", "-H", metavar="NAME: VALUE", help="webhook-id, -timestamp, -signature.")
    ],
    secret: Secret = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", min=0, help="Seconds its time may be off; without it, its age does not count."),
    ] = None,
) -> None:
    """Check a webhook that was saved: is it signed with this secret? Needs no key and no Relay."""
    if secret is None:
        raise UsageError("Say which secret, with --secret or RELAY_WEBHOOK_SECRET.")
    _must_be_key(secret)
    headers = pairs(header, ":", "--header") or {}
    came = content(body)
    try:
        verified = verify(secret, headers, came, tolerance)
    except WebhookVerificationError as refused:
        raise Stopped(f"Not to be trusted: {refused}.{_hint(secret, headers, came)}") from None
    off = abs(time.time() - verified.timestamp)
    if session.json:
        session.out.document({"verified": True, "seconds_off": round(off), **_fields(verified)})
        return
    session.out.say(f"The signature is good: {verified.id}, {age_of(off)} old.")
    if off > TOLERANCE_S:
        session.out.say(f"A receiver would refuse it by now: its time is more than {TOLERANCE_S} s off.")


def _fields(verified: Any) -> dict[str, Any]:
    return {name: getattr(verified, name) for name in verified.__dataclass_fields__}


def _must_be_key(secret: str) -> None:
    try:
        verify(secret, {}, b"")
    except BadSecret as bad:
        raise UsageError(f"--secret cannot be one: {bad}.") from None
    except WebhookVerificationError:
        return


def _hint(secret: str, headers: dict[str, str], body: bytes) -> str:
    """What is often the matter with a body that was saved."""
    try:
        verify(secret, headers, body.rstrip(b"\r\n"), None)
    except WebhookVerificationError:
        return ""
    return " Without the line feed at its end it is: the body that came had none."
