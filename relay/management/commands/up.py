from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandError

from relay import settings
from relay.commands import PlainChecks
from relay.env import BadVariable
from relay.up import CannotStart, Up


class Command(PlainChecks):
    help = "Run everything: PostgreSQL (unless DATABASE_URL names one), migrations, the web server and the workers."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            code = Up(settings.CONFIG).run()
        except BadVariable as bad:
            raise CommandError(str(bad), returncode=2) from bad
        except CannotStart as reason:
            raise CommandError(str(reason), returncode=1) from reason
        sys.exit(code)
