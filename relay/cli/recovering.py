"""`relay recover` and `relay jobs`: replay what failed since a time, and follow the work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from relay.cli.output import note
from relay.cli.session import Limit, Session, Stopped, Yes, command, prepared, since
from relay.cli.show import show_job
from relay.cli.text import clean
from relay.client.configuration import Job

jobs = typer.Typer(help="Long work that somebody asked for; without a further word, a list of it.")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    command(app, "recover")(recover)


def recover(
    session: Session,
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="ep_…, or `all` endpoints of the tenant.")],
    after: Annotated[str, typer.Option("--since", metavar="TIME", help="As 2h, 3d, or a time.")],
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this time; else now.")] = None,
    type: Annotated[list[str] | None, typer.Option("--type", help="Of these types; may be repeated.")] = None,
    status: Annotated[
        list[str] | None, typer.Option("--status", help="failed, cancelled or delivered; may be repeated.")
    ] = None,
    per_second: Annotated[int | None, typer.Option("--per-second", min=1, help="At most so many a second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Deliver once more what failed since a time. It counts first, asks, and then shows how far it is."""
    to = None if endpoint == "all" else endpoint
    given: dict[str, Any] = {
        "since": since(after),
        "until": None if until is None else since(until),
        "types": type or None,
        "status": status or None,
    }
    counted = session.relay.wait_for(session.relay.recover(to, dry_run=True, **given), every=0.2)
    _must_be_done(counted)
    if dry_run:
        _told(session, counted, f"{counted.matched} deliveries would be replayed.")
        return
    if counted.matched == 0:
        _told(session, counted, "There is nothing to replay.")
        return
    session.sure(f"Replay {counted.matched} deliveries to {endpoint}?", yes=yes)
    # Just what was counted, and not what came since.
    given["until"] = datetime.fromisoformat(counted.parameters["until"])
    job = session.relay.recover(to, dry_run=False, per_second=per_second, **given)
    note(f"{job.id} has begun; `relay jobs cancel {job.id}` stops it.")
    try:
        ended = follow(session, job, counted.matched)
    except KeyboardInterrupt:
        raise Stopped(f"{job.id} goes on without you; `relay jobs cancel {job.id}` stops it.") from None
    _must_be_done(ended)
    skipped = f", {ended.skipped} skipped, which had changed meanwhile" if ended.skipped else ""
    _told(session, ended, f"{ended.changed} replayed{skipped}.")


def follow(session: Session, job: Job, expected: int) -> Job:
    """The job when it has ended, shown with a bar on a terminal."""
    bar, seen = _bar(expected) if session.out.live else (nullcontext(), None)
    with bar:
        return session.relay.wait_for(job, seen=seen)


def _bar(expected: int) -> tuple[AbstractContextManager[Any], Callable[[Job], object]]:
    progress = Progress(TextColumn("replayed"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    task = progress.add_task("", total=expected)
    return progress, lambda job: progress.update(task, completed=job.changed + job.skipped)


def _must_be_done(job: Job) -> None:
    if job.status != "done":
        why = f": {clean(job.error)}" if job.error else ""
        raise Stopped(f"{job.id} is {job.status}{why}; {job.changed} were replayed.")


def _told(session: Session, job: Job, text: str) -> None:
    session.out.document(job) if session.json else session.out.say(text)


def list_jobs(session: Session, ctx: typer.Context, limit: Limit = 20) -> None:
    """Long work that somebody asked for; without a further word, a list of it, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    rows = list(session.relay.jobs(limit=limit))
    if session.json:
        session.out.document(rows)
        return
    session.out.table(
        ("job", "kind", "status", "found", "changed", "skipped", "asked", "by"),
        [
            (
                row.id, f"{row.kind}, dry run" if row.dry_run else row.kind, row.status, row.matched, row.changed,
                row.skipped, row.created_at, row.actor,
            )
            for row in rows
        ],
        empty="There are none.",
    )  # fmt: skip


jobs.callback(invoke_without_command=True)(prepared(list_jobs))


@command(jobs, "show")
def show(session: Session, job: Annotated[str, typer.Argument(metavar="JOB", help="job_…")]) -> None:
    """Show how far a job is."""
    found = session.relay.job(job)
    session.out.document(found) if session.json else show_job(session.out, found)


@command(jobs, "wait")
def wait(session: Session, job: Annotated[str, typer.Argument(metavar="JOB", help="job_…")]) -> None:
    """Wait until a job has ended. Exit status 1 unless it is done."""
    ended = session.relay.wait_for(job)
    if session.json:
        session.out.document(ended)
    _must_be_done(ended)
    if not session.json:
        show_job(session.out, ended)


@command(jobs, "cancel")
def cancel(session: Session, job: Annotated[str, typer.Argument(metavar="JOB", help="job_…")]) -> None:
    """Stop a job where it stands; what it has done stays done."""
    cancelled = session.relay.cancel_job(job)
    _told(session, cancelled, f"It is {cancelled.status}, after {cancelled.changed} changes.")
