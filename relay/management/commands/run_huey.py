from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.utils.module_loading import autodiscover_modules
from huey.constants import WORKER_PROCESS
from huey.consumer_options import ConsumerConfig
from huey.contrib.djhuey.management.commands import run_huey

from relay.commands import PlainChecks
from relay.consumer import DrainingConsumer, drain_seconds

log = logging.getLogger("relay.dispatch")


class Command(PlainChecks, run_huey.Command):  # type: ignore[misc]
    help = "Run Huey's consumer: the dispatchers and every other background task. SIGINT and SIGTERM drain it."
    looks_into_the_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        # A dispatcher that ends its slice drains while its successor already claims, so there may be two for each
        # slot; and one worker more is kept for all other tasks.
        parser.set_defaults(workers=2 * settings.RELAY_DISPATCHERS + 1, worker_type="process")
        parser.set_defaults(health_check_interval=1.0, shutdown_timeout=drain_seconds())

    def handle(self, *args: Any, **options: Any) -> None:
        if options["worker_type"] != WORKER_PROCESS:
            raise CommandError(
                "--worker-type must be process: a dispatcher's transport belongs to one process and must not be shared "
                "by threads.",
                returncode=2,
            )
        if not options.pop("disable_autoload"):
            autodiscover_modules("tasks")
        config = ConsumerConfig(
            **{name: options[name] for name in ConsumerConfig._fields if options.get(name) is not None}
        )
        try:
            config.validate()
        except ValueError as wrong:
            raise CommandError(str(wrong), returncode=2) from wrong
        if config.verbose is not None or config.logfile:
            logging.getLogger("huey").handlers.clear()
            config.setup_logger(logging.getLogger("huey"))
        if settings.RELAY_FAILPOINT is not None:
            log.warning("RELAY_FAILPOINT is set: a worker will fail on purpose at %s", settings.RELAY_FAILPOINT)
        DrainingConsumer(settings.HUEY, **config.values).run()
