"""The command line, put together."""

from __future__ import annotations

import typer

from relay.cli import acting, endpoints, event_types, keys, receiving, recovering, sending, show, tail

app = typer.Typer(
    name="relay",
    help="Send events through Relay, and see and settle what became of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for part in (sending, tail, show, acting, recovering, receiving):
    part.register(app)
app.add_typer(recovering.jobs, name="jobs")
app.add_typer(endpoints.app, name="endpoints")
app.add_typer(event_types.app, name="event-types")
app.add_typer(keys.app, name="keys")
app.add_typer(keys.tenants, name="tenants")


def main() -> None:
    """The console script `relay`."""
    app(prog_name="relay")
