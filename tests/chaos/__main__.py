"""`python -m tests.chaos SECONDS SEED [--workers N] [--keep]`: faults for SECONDS, then heal, wait for quiet, check.

The same seed plans the same faults and the same misbehaviour of the receiver; the kernel's timing is its own, so two
runs of one seed are alike and not the same. Not done: a full disk, which needs a file system of its own and so root.

The last line is JSON. Exit code 1 when anything that must hold did not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.chaos.receiver import Record
    from tests.chaos.world import World

ANSWERS_S = 30.0
QUIET_S = 90.0
RETRIES = [1, 1, 2, 2, 3, 3, 4, 4]
ENDPOINTS: dict[str, dict[str, Any]] = {
    "idempotent": {"idempotent": True},
    "queryable": {"idempotent": False, "query": True},
    "both": {"idempotent": True, "query": True},
    "neither": {"idempotent": False},
    "neither_acks": {"idempotent": False},
    "gone": {"idempotent": True, "types": ["rare"]},
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("--workers", type=int, default=4, help="dispatchers, over two consumers")
    parser.add_argument("--keep", action="store_true", help="keep the cluster and the logs also when all is well")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="relay-chaos-"))
    if os.geteuid() == 0:
        folder.chmod(0o711)  # PostgreSQL runs as another user then, and must get through.
    _environment(folder)
    import django

    report, wrong = _run(asked, folder, django.setup)
    for one in wrong[:50]:
        print(f"VIOLATION {one}")
    keep = asked.keep or bool(wrong)
    report |= {"violations": len(wrong), "kept": str(folder) if keep else None}
    for name, value in report.items():
        print(f"{name}: {value}")
    if not keep:
        shutil.rmtree(folder)
    print(json.dumps(report), flush=True)
    return 1 if wrong else 0


def _environment(folder: Path) -> None:
    for name in [name for name in os.environ if name.startswith("RELAY_") or name in ("HUEY_URL", "DATABASE_URL")]:
        del os.environ[name]
    os.environ.update(
        DJANGO_SETTINGS_MODULE="relay.settings",
        RELAY_DATA_DIR=str(folder / "data"),
        RELAY_SECRET_KEY="of-no-use-outside-chaos-0123456789-0123456789",
        RELAY_EGRESS_ALLOW="127.0.0.0/8",
        RELAY_EGRESS_HTTP="on",
        RELAY_LEASE_TTL_MS="7500",
        RELAY_HEARTBEAT_MS="500",
        RELAY_HTTP_TIMEOUT_MS="1500",
        RELAY_SWEEP_MS="500",
    )


def _run(asked: argparse.Namespace, folder: Path, setup: Any) -> tuple[dict[str, Any], list[str]]:
    setup()
    from tests.chaos import verdict
    from tests.chaos.nemesis import Nemesis, plan
    from tests.chaos.receiver import Acknowledger, ChaosReceiver
    from tests.chaos.submitter import Submitter
    from tests.chaos.world import World

    consumers = 2
    world = World(folder, consumers=consumers, dispatchers=max(1, asked.workers // consumers))
    secrets: dict[str, str] = {}
    acknowledger = Acknowledger(asked.seed, lambda record: _acknowledge(world, secrets[record.endpoint], record))
    receiver = ChaosReceiver(asked.seed, acknowledger.about)
    with receiver:
        world.start_postgres()
        key = _prepare(world, receiver.url, secrets)
        world.start()
        nemesis = Nemesis(world, plan(asked.seconds, asked.seed), _say)
        submitter = Submitter(world.url, key, asked.seed)
        try:
            submitter.start()
            acknowledger.start()
            nemesis.run(asked.seconds)
            nemesis.heal()
            receiver.healed = True
            healed = time.monotonic()
            submitter.finish(ANSWERS_S)
            quiet, seen = verdict.wait_for_quiet(world, QUIET_S)
            took = round(time.monotonic() - healed - verdict.STILL_S, 1)
            acknowledger.stop()
            wrong = [] if quiet is not None else [f"it was not quiet {QUIET_S:.0f} s after healing: {seen}"]
            wrong += verdict.violations(world, submitter, receiver.records)
            report = {
                "seed": asked.seed,
                "seconds": asked.seconds,
                "faults": dict(sorted(nemesis.injected.items())),
                "events_accepted": len(submitter.accepted),
                "submit_retries": submitter.retries,
                **verdict.figures(world, receiver.records),
                "misbehaviour": receiver.ways,
                "questions": receiver.questions,
                "acknowledged": acknowledger.sent,
                "quiet_after_s": took if quiet is not None else None,
            }
        finally:
            world.stop()
    return report, wrong


def _prepare(world: World, receiver_url: str, secrets: dict[str, str]) -> str:
    """Migrate, make the endpoints and a key, and begin the journal; the key's text."""
    from django.core.management import call_command
    from django.db import connections

    from deliveries.endpoints import Changes, create
    from deliveries.keys import new_key
    from deliveries.models import DEFAULT_TENANT, Scope
    from tests.history import journal

    call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
    for name, given in ENDPOINTS.items():
        options = dict(given)
        query = options.pop("query", False)
        changes: Changes = {
            "url": f"{receiver_url}hook/{name}",
            "retry_schedule": RETRIES,
            "retry_jitter": 0.0,
            "query_url": f"{receiver_url}ask/{name}" if query else None,
            **options,  # type: ignore[typeddict-item]
        }
        secrets[name] = create(DEFAULT_TENANT, changes)[1]
    key = new_key("chaos", [Scope.EVENTS_WRITE.value], DEFAULT_TENANT)[1]
    connections.close_all()
    journal.install(world.superuser)
    return key


def _acknowledge(world: World, secret: str, record: Record) -> bool:
    """Tell that it was processed; whether that got an answer which another try would not change."""
    import requests

    from deliveries import signing

    body = json.dumps({"operation": record.operation_id, "run": record.run_id, "outcome": "processed"}).encode()
    key = signing.derived(signing.secret_bytes(secret), signing.ACKNOWLEDGEMENT)
    message, now = f"ack-{record.body_sha256[:20]}-{record.attempt}", int(time.time())
    headers = {
        "content-type": "application/json",
        "webhook-id": message,
        "webhook-timestamp": str(now),
        "webhook-signature": signing.sign(key, message, now, body),
    }
    try:
        answer = requests.post(f"{world.url}/v1/acknowledgements", data=body, headers=headers, timeout=5)
    except requests.RequestException:
        return False
    return answer.status_code < 500


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
