from __future__ import annotations

import logging
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.utils.module_loading import autodiscover_modules
from huey.consumer_options import ConsumerConfig
from huey.contrib.djhuey.management.commands import run_huey

from deliveries.timing import SETTLE_BUDGET_MS
from relay.consumer import DrainingConsumer


class Command(run_huey.Command):  # type: ignore[misc]
    help = "Run Huey's consumer: the dispatchers and every other background task. SIGINT and SIGTERM drain it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        # Dispatchers linger in their task, so one worker more is kept for all the others.
        parser.set_defaults(workers=settings.RELAY_DISPATCHERS + 1, worker_type="process", health_check_interval=1.0)
        # Longer than a send and its settling can take: whoever is still busy then is stuck.
        parser.set_defaults(shutdown_timeout=(settings.RELAY_HTTP_TIMEOUT_MS + 2 * SETTLE_BUDGET_MS) / 1000)

    def handle(self, *args: Any, **options: Any) -> None:
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
        DrainingConsumer(settings.HUEY, **config.values).run()
