from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from relay import web
from relay.commands import PlainChecks


class Command(PlainChecks):
    help = "Run the web server on RELAY_HOST and RELAY_PORT, and nothing else."
    looks_into_the_database = True

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            web.check_port()
        except web.PortTaken as taken:
            raise CommandError(str(taken), returncode=2) from taken
        web.serve()
