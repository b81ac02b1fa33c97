from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from deliveries import ids
from deliveries.endpoints import EndpointRefused
from deliveries.models import DEFAULT_TENANT, Tenant
from relay.commands import DatabaseCommand
from relay.listener import Listener, close_endpoint, open_endpoint


class Command(DatabaseCommand):
    help = "Run a small receiver on 127.0.0.1 that checks signatures and shows what arrives. It makes its endpoint."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("port", nargs="?", type=int, default=8010)
        parser.add_argument("--tenant", default=DEFAULT_TENANT)

    def show(self, text: str) -> None:
        """Print at once, also into a file or a pipe."""
        self.stdout.write(text)
        self.stdout.flush()

    def handle(self, *args: Any, **options: Any) -> None:
        port, tenant = options["port"], options["tenant"]
        if not Tenant.objects.filter(tenant_id=tenant).exists():
            raise CommandError(f"There is no tenant {tenant}.")
        # A shell starts what it runs in the background with SIGINT ignored, so both are asked for.
        stopping = threading.Event()
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, lambda *_: stopping.set())
        url = f"http://127.0.0.1:{port}/"
        try:
            listener = Listener(port, self.show)
        except OSError as refused:
            raise CommandError(f"Cannot listen on port {port}: {refused.strerror}.") from refused
        except OverflowError:
            raise CommandError("The port must be a number from 1 to 65535.", returncode=2) from None
        with listener:
            try:
                endpoint_id, listener.secret = open_endpoint(url, tenant)
            except EndpointRefused as refused:
                raise CommandError(f"Relay may not call {url}: {refused}. See RELAY_EGRESS_ALLOW.") from refused
            try:
                self.show(
                    f"Listening on {url} for the tenant {tenant}. Ctrl-C stops it and disables its endpoint, "
                    f"{ids.render(ids.ENDPOINT, endpoint_id)}."
                )
                listener.serve(stopping)
            finally:
                close_endpoint(tenant, endpoint_id)
        self.show("Its endpoint is disabled: events submitted from now on do not go to it. `listen` enables it again.")
