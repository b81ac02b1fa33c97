from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from deliveries import ids
from deliveries.api import present
from deliveries.models import Event
from ledger.models import Task
from relay.commands import DatabaseCommand
from relay.story import tell


class Command(DatabaseCommand):
    help = "Tell the whole life of one delivery: runs, terms, attempts, takeovers, refused writes and decisions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("delivery", metavar="DELIVERY", help="its id, dlv_…")
        parser.add_argument("--json", action="store_true", help="the same as GET /v1/deliveries/{id} answers")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            task_id = ids.parse(ids.DELIVERY, options["delivery"])
        except ids.MalformedId as malformed:
            raise CommandError(str(malformed), returncode=2) from malformed
        task = Task.objects.filter(task_id=task_id).first()
        if task is None:
            raise CommandError(f"there is no delivery {options['delivery']}")
        delivery = present.whole_delivery(task)
        if options["json"]:
            self.stdout.write(delivery.model_dump_json(indent=2))
        else:
            self.stdout.write("\n".join(tell(delivery, _expunged_at(task))))


def _expunged_at(task: Task) -> datetime | None:
    """When the content of its event was removed."""
    return Event.objects.filter(event_id=task.event_id).values_list("expunged_at", flat=True).first()
