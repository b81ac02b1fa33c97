from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.db import Error as DatabaseError

from deliveries import ids, resealing, sealing
from relay.commands import DatabaseCommand
from relay.management.commands.check_ledger import Progress, positive

SHOWN = 20
"""How many endpoints are named that do not open; all are counted."""


class Command(DatabaseCommand):
    help = (
        "Seal every stored secret anew under RELAY_SECRET_KEY, from those of RELAY_SECRET_KEY_FALLBACKS, while the "
        "system runs. Exit code 1 if something is left under another key."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count what is sealed under which key")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--batch", type=positive, default=resealing.BATCH, help="rows per commit (%(default)s)")

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except DatabaseError as error:
            raise CommandError(f"It was broken off: {error}".strip(), returncode=2) from error
        except CommandError as error:
            raise CommandError(str(error), returncode=2) from error

    def handle(self, *args: Any, **options: Any) -> None:
        current = sealing.key_ids()[0]
        resealed = 0
        unopened: list[UUID] = []
        if not options["dry_run"]:
            resealed, unopened = self._reseal(options["batch"])
        uses = resealing.key_uses()
        left = sum(use.tokens for use in uses if use.key_id != current)
        if options["json"]:
            told = {"current": current, "endpoints_resealed": resealed, "endpoints_unopened": len(unopened)}
            keys = {use.key_id: {"tokens": use.tokens, "endpoints": use.endpoints} for use in uses}
            self.stdout.write(json.dumps({**told, "keys": keys, "left": left}))
        else:
            self._text(current, uses, resealed, left, dry_run=options["dry_run"])
        for endpoint_id in unopened[:SHOWN]:
            self.stderr.write(f"{ids.render(ids.ENDPOINT, endpoint_id)}: sealed under a key that is not in the ring")
        if left and not options["dry_run"]:
            sys.exit(1)

    def _reseal(self, batch: int) -> tuple[int, list[UUID]]:
        progress = Progress(self, None)
        resealed = 0
        unopened: list[UUID] = []
        after: UUID | None = resealing.FIRST
        while after is not None:
            stretch = resealing.reseal_stretch(after, batch=batch)
            resealed += stretch.resealed
            unopened += stretch.unopened
            progress.walked("deliveries_endpoint", stretch.resealed)
            after = stretch.walked_to
        return resealed, unopened

    def _text(self, current: str, uses: list[resealing.KeyUse], resealed: int, left: int, *, dry_run: bool) -> None:
        ring = sealing.key_ids()
        for use in uses:
            place = (
                "the current key"
                if use.key_id == current
                else "a fallback"
                if use.key_id in ring
                else "not in the ring"
                if use.key_id
                else "damaged"
            )
            self.stdout.write(f"{use.key_id or '-'}: {use.tokens} secrets of {use.endpoints} endpoints ({place})")
        if dry_run:
            self.stdout.write(f"{left} secrets would be sealed anew under {current}, where they open")
            return
        self.stdout.write(f"{resealed} endpoints were sealed anew under {current}")
        if left:
            self.stdout.write(
                f"{left} secrets are left under another key: one that is not in the ring, or that a process which was "
                "not restarted still seals with. Mend that, and run this again."
            )
        else:
            self.stdout.write("Nothing needs a former key any more: take them out of RELAY_SECRET_KEY_FALLBACKS.")
