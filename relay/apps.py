from django.apps import AppConfig
from django.conf import settings
from django.db.backends.signals import connection_created


class RelayConfig(AppConfig):
    name = "relay"
    verbose_name = "Relay"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from deliveries import failpoints
        from relay import checks, database  # noqa: F401 - importing the checks registers them

        connection_created.connect(database.bound_idle_transactions, dispatch_uid="relay.bound_idle_transactions")
        failpoints.arm(settings.RELAY_FAILPOINT)
