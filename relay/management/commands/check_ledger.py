from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.utils.dateparse import parse_date, parse_datetime

from deliveries.audit import KINDS, WALKS
from ledger import audit
from ledger.audit import Breach
from ledger.statements import session
from relay.commands import DatabaseCommand

BATCH = 5_000
SHOWN = 20
"""How many rows of each kind are named; all are counted."""
SWEEPS = 10
"""How many sweeps the reconciler is given for what the clock decides, after a lease has run out."""
EVERY_S = {True: 1.0, False: 30.0}
"""How often progress is told: on a terminal, and elsewhere."""
SESSION = {"default_transaction_read_only": "on", "jit": "off", "plan_cache_mode": "force_custom_plan"}


class Command(DatabaseCommand):
    help = "Check every invariant over the database, while it is in use. Exit code 1 and the rows if one fails."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--batch", type=positive, default=BATCH, help="rows per statement (%(default)s)")
        parser.add_argument("--since", type=_time, help="only what was made since: 2027-01-31 or 2027-01-31T12:00:00Z")

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except DatabaseError as error:
            raise CommandError(f"It could not be checked: {error}".strip(), returncode=2) from error
        except CommandError as error:
            raise CommandError(str(error), returncode=2) from error

    def handle(self, *args: Any, **options: Any) -> None:
        shown: dict[str, list[Breach]] = defaultdict(list)
        counts: Counter[str] = Counter()
        patience_ms = settings.RELAY_LEASE_TTL_MS + SWEEPS * settings.RELAY_SWEEP_MS
        with session(**SESSION):
            progress = Progress(self, audit.expected_rows(WALKS) if options["since"] is None else None)
            for stretch in audit.walk(
                WALKS, batch=options["batch"], patience_ms=patience_ms, since=options["since"]
            ):  # fmt: skip
                for breach in stretch.breaches:
                    counts[breach.kind] += 1
                    if len(shown[breach.kind]) < SHOWN:
                        shown[breach.kind].append(breach)
                progress.walked(stretch.table, stretch.rows)
        if options["json"]:
            self._json(counts, shown, progress)
        else:
            self._text(counts, shown, progress)
        if counts:
            sys.exit(1)

    def _json(self, counts: Counter[str], shown: dict[str, list[Breach]], progress: Progress) -> None:
        breaches = {
            kind: {
                "rule": KINDS[kind],
                "count": counts[kind],
                "first": [{"id": one.subject, "what": one.what} for one in shown[kind]],
            }
            for kind in sorted(counts)
        }
        self.stdout.write(
            json.dumps({"clean": not counts, "rows": progress.rows, "seconds": progress.seconds, "breaches": breaches})
        )

    def _text(self, counts: Counter[str], shown: dict[str, list[Breach]], progress: Progress) -> None:
        for kind in sorted(counts):
            self.stdout.write(f"{kind}: not so that {KINDS[kind]}: {counts[kind]}")
            for one in shown[kind]:
                self.stdout.write(f"  {one.subject}: {one.what}")
            if counts[kind] > len(shown[kind]):
                self.stdout.write(f"  and {counts[kind] - len(shown[kind])} more")
        result = f"{sum(counts.values())} breaches of {len(counts)} kinds" if counts else "no breach"
        self.stdout.write(f"{result} of {len(KINDS)} rules in {progress.rows} rows, {progress.seconds} s")


class Progress:
    """Tells how far it is, now and then. A table that two walks go through counts twice."""

    def __init__(self, command: BaseCommand, expected: int | None) -> None:
        self.rows = 0
        self._command, self._expected = command, expected
        self._began = self._told = time.monotonic()
        self._every = EVERY_S[command.stderr.isatty()]

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began, 2)

    def walked(self, table: str, rows: int) -> None:
        """Count rows, and say so when it is time."""
        self.rows += rows
        now = time.monotonic()
        if now - self._told < self._every:
            return
        self._told = now
        rate = self.rows / max(now - self._began, 0.001)
        said = f"{self.rows} rows, {rate:.0f} rows/s, in {table}"
        if self._expected and self._expected > self.rows:
            said += f", {100 * self.rows // self._expected} %, {(self._expected - self.rows) / rate:.0f} s left"
        self._command.stderr.write(said, self._command.style.NOTICE)


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise ArgumentTypeError("it must be a whole number above 0")
    return int(text)


def _time(text: str) -> datetime:
    """A date means its first moment in UTC."""
    try:
        day = parse_date(text) if len(text) == len("2027-01-31") else None
        moment = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else parse_datetime(text)
    except ValueError:  # of the right form, but no day of any month
        moment = None
    if moment is None:
        raise ArgumentTypeError("it must be a date or a time, as 2027-01-31 or 2027-01-31T12:00:00Z")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
