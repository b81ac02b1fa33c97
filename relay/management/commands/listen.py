from __future__ import annotations

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.db import connections

from deliveries import ids
from deliveries.endpoints import EndpointRefused, create, living, update
from deliveries.models import DEFAULT_TENANT, Tenant
from deliveries.sealing import unseal
from deliveries.signing import key_of
from relay.cli.signals import until_stopped
from relay.commands import DatabaseCommand
from relay.listener import Arrived, Listener


class Command(DatabaseCommand):
    help = "Run a small receiver on 127.0.0.1 that checks signatures and shows what arrives. It makes its endpoint."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("port", nargs="?", type=int, default=8010)
        parser.add_argument("--tenant", default=DEFAULT_TENANT)

    def show(self, text: str) -> None:
        """Print at once, also into a file or a pipe."""
        self.stdout.write(text)
        self.stdout.flush()

    def arrived(self, request: Arrived) -> None:
        self.show(request.text())

    def handle(self, *args: Any, **options: Any) -> None:
        port, tenant = options["port"], options["tenant"]
        if not Tenant.objects.filter(tenant_id=tenant).exists():
            raise CommandError(f"There is no tenant {tenant}.")
        url = f"http://127.0.0.1:{port}/"
        with until_stopped() as stopping:
            try:
                listener = Listener(port, self.arrived)
            except OSError as refused:
                raise CommandError(f"Cannot listen on port {port}: {refused.strerror}.") from refused
            except OverflowError:
                raise CommandError("The port must be a number from 1 to 65535.", returncode=2) from None
            with listener:
                try:
                    endpoint_id, listener.key = _opened(url, tenant)
                except EndpointRefused as refused:
                    raise CommandError(f"Relay may not call {url}: {refused}. See RELAY_EGRESS_ALLOW.") from refused
                try:
                    self.show(
                        f"Listening on {url} for the tenant {tenant}. Ctrl-C stops it and disables its endpoint, "
                        f"{ids.render(ids.ENDPOINT, endpoint_id)}."
                    )
                    listener.serve(stopping)
                finally:
                    _close(tenant, endpoint_id)
        self.show("Its endpoint is disabled: events submitted from now on do not go to it. `listen` enables it again.")


def _opened(url: str, tenant_id: str) -> tuple[UUID, str]:
    """The id of the tenant's endpoint at `url`, enabled, and made if there is none; and what verifies its signatures.

    Raises `EndpointRefused` when Relay may not call that address.
    """
    try:
        known = living(tenant_id).filter(url=url).first()
        if known is not None:
            update(tenant_id, known.endpoint_id, {"url": url, "enabled": True})
            secret = unseal(known.secret_sealed, f"endpoint:{known.endpoint_id}")
            return known.endpoint_id, key_of(secret).public or secret
        made, secret = create(tenant_id, {"url": url, "description": "manage.py listen"})
        return made.endpoint_id, secret
    finally:
        connections.close_all()


def _close(tenant_id: str, endpoint_id: UUID) -> None:
    """Disable it, so that no event goes to a port where nobody listens."""
    try:
        update(tenant_id, endpoint_id, {"enabled": False})
    finally:
        connections.close_all()
