"""`tao-sdk watch`."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from tao_sdk.cli.humanise import one_line, short_id
from tao_sdk.cli.parameters import time_span
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.watch_process import start_watcher
from tao_sdk.watcher import Change, Watcher


@click.command()
@click.option("-d", "--detach", is_flag=True, help="Watch in the background.")
@click.option("--once", is_flag=True, help="Ask every platform once and return.")
@click.option(
    "--interval", type=time_span, default="2s", show_default=True, metavar="TIME", help="How often."
)
@json_option
@pass_session
def command(session: Session, detach: bool, once: bool, interval: timedelta) -> None:
    """Keep the states of all open jobs current.

    Prints every change, and returns when no job is open. One watcher per store is enough; run
    starts one by itself.
    """
    if detach and once:
        raise click.UsageError("--detach and --once exclude each other")
    seconds = interval.total_seconds()
    if detach:
        _detach(session, seconds)
        return
    watcher = Watcher(
        session.place.state_file,
        report=lambda change: _report(session, change),
        complain=session.out.warn,
        poll_seconds=seconds,
    )
    if once:
        watcher.look()
    else:
        watcher.run()


def _report(session: Session, change: Change) -> None:
    status = change.status
    if session.out.json:
        session.out.document(
            "change",
            {
                "job_id": change.job_id,
                "platform": change.platform,
                "before": change.before,
                "status": status.status,
                "message": status.message,
                "at": status.updated_at,
            },
        )
    else:
        now = datetime.now().astimezone()
        session.out.line(
            f"{now:%Y-%m-%d %H:%M:%S}  {short_id(change.job_id)}  {change.platform}  "
            f"{change.before} -> {status.status}  {one_line(status.message)}".rstrip()
        )
    session.out.flush()


def _detach(session: Session, seconds: float) -> None:
    watcher = start_watcher(session.place, seconds)
    store = session.place.store.path
    if session.out.json:
        fields = {"store": store, "process": watcher.process, "log": str(watcher.log)}
        session.out.document("watcher", fields)
    elif watcher.process is None:
        session.out.line(f"{store} is watched already; log: {watcher.log}")
    else:
        session.out.line(f"process {watcher.process} watches {store}; log: {watcher.log}")
