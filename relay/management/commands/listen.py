from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from deliveries.endpoints import EndpointRefused
from deliveries.models import DEFAULT_TENANT
from relay.commands import DatabaseCommand
from relay.listener import Listener, endpoint_for


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
        url = f"http://127.0.0.1:{options['port']}/"
        try:
            with Listener(options["port"], self.show) as listener:
                listener.secret = endpoint_for(url, options["tenant"])
                self.show(f"Listening on {url} for the tenant {options['tenant']}. Ctrl-C stops it.")
                listener.serve()
        except EndpointRefused as refused:
            raise CommandError(f"Relay may not call {url}: {refused}. See RELAY_EGRESS_ALLOW.") from refused
        except OSError as refused:
            raise CommandError(f"Cannot listen on port {options['port']}: {refused.strerror}.") from refused
        except KeyboardInterrupt:
            self.stdout.write("The endpoint stays; it can be removed in the admin.")
