from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError
from django.utils.dateparse import parse_date, parse_datetime

from deliveries.keys import BadKey, new_key
from deliveries.models import Scope, Tenant
from relay.commands import DatabaseCommand


class Command(DatabaseCommand):
    help = "Make an API key and print it, this once. Without --tenant it is an operator's key."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what the key is for")
        parser.add_argument("--tenant", help="the tenant whose key it is")
        parser.add_argument(
            "--scope", action="append", choices=Scope.values, help="what it may do; may be repeated; all if left out"
        )
        parser.add_argument("--expires", type=_time, help="when it ends: 2027-01-31 or 2027-01-31T12:00:00Z")
        parser.add_argument("--json", action="store_true", help="print a JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = options["tenant"]
        if tenant is not None and not Tenant.objects.filter(tenant_id=tenant).exists():
            raise CommandError(f"There is no tenant {tenant}.")
        scopes = options["scope"] or Scope.values
        try:
            row, text = new_key(options["name"], scopes, tenant, expires_at=options["expires"])
        except BadKey as bad:
            raise CommandError(f"The key was not made: {bad}.") from bad
        if options["json"]:
            self.stdout.write(json.dumps({"key": text, "name": row.name, "tenant": tenant, "scopes": row.scopes}))
        else:
            self.stdout.write(text)
            self.stderr.write("It is not shown again.")


def _time(text: str) -> datetime:
    """A date means its first moment in UTC."""
    try:
        day = parse_date(text) if len(text) == len("2027-01-31") else None
        moment = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else parse_datetime(text)
    except ValueError:  # of the right form, but no day of any month
        moment = None
    if moment is None:
        raise ArgumentTypeError("it must be a date or a time, as 2027-01-31 or 2027-01-31T12:00:00Z")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment <= datetime.now(UTC):
        raise ArgumentTypeError("it must be later than now")
    return moment
