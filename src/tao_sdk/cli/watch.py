"""`tao-sdk watch`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.documents import change_fields
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.interruptions import TerminatedError, termination_raises
from tao_sdk.cli.parameters import time_span
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.watch_process import start_watcher
from tao_sdk.job_store import Row
from tao_sdk.visible_text import one_line
from tao_sdk.watcher import Change, Watcher, is_watched


@click.command(
    epilog=examples(
        ("tao-sdk watch", "print every change until no job is open"),
        ("tao-sdk watch -d", "the same in the background"),
        ("tao-sdk watch --once", "look once, for cron"),
    )
)
@click.option("-d", "--detach", is_flag=True, help="Watch in the background.")
@click.option("--once", is_flag=True, help="Ask every platform once and return.")
@click.option(
    "--interval",
    type=time_span,
    default="2s",
    show_default=True,
    metavar="TIME",
    help="How often, at most; some platforms are asked more rarely.",
)
@json_option
@pass_session
def command(session: Session, detach: bool, once: bool, interval: timedelta) -> int | None:
    """Keep the states of all open jobs current.

    Prints every change, and returns when no job is open and no rented instance is to be deleted.
    One watcher per store is enough; run starts one by itself. Without one nothing is lost, but
    nothing is tried again or cleaned up until a command such as wait attends to the job.
    """
    if detach and once:
        raise click.UsageError("--detach and --once exclude each other")
    seconds = interval.total_seconds()
    if detach:
        _detach(session, seconds)
        return None
    watcher = Watcher(
        session.place.state_file,
        report=lambda change: _report(session, change),
        complain=lambda text: session.out.warn(f"{_now()}  {text}"),
        poll_seconds=seconds,
    )
    if once:
        _say_what_is_watched(session, "asking once")
        still_open = watcher.look()
        _say(session, f"{_jobs(still_open)} still open")
        return None
    return _watch(session, watcher, seconds)


def _watch(session: Session, watcher: Watcher, seconds: float) -> int:
    store = session.place.store
    if not is_watched(store.path):  # otherwise `run` names the other watcher
        _say_what_is_watched(session, f"looking every {seconds:g} s")
    try:
        with termination_raises():
            watcher.run()
    except KeyboardInterrupt:
        session.out.say("")  # ends the line on which the terminal shows ^C
        return _say_goodbye(session, "stopped by Ctrl-C", exit_codes.DETACHED)
    except TerminatedError:
        return _say_goodbye(session, "terminated", exit_codes.CANCELED)
    left = store.active_jobs()
    if left:
        # Those that this machine has no platform for were complained about when they were seen.
        _say(session, f"the end: {_jobs(len(left))} open, which cannot be watched from here")
    else:
        _say(session, "the end: no job is open")
    return exit_codes.OK


def _say_goodbye(session: Session, why: str, code: int) -> int:
    left = session.place.store.active_jobs()
    goes_on = f"; {_jobs(len(left))} open and not watched" if left else "; no job is open"
    _say(session, why + goes_on)
    return code


def _say_what_is_watched(session: Session, how: str) -> None:
    store = session.place.store
    _say(session, f"{store.path}: {_overview(store.active_jobs())}; {how}")


def _overview(rows: Sequence[Row]) -> str:
    """`3 open jobs (2 local, 1 slurm)`"""
    counts = Counter(str(row["backend_type"]) for row in rows)
    each = ", ".join(f"{count} {platform}" for platform, count in sorted(counts.items()))
    return f"{_jobs(len(rows))} open" + (f" ({each})" if each else "")


def _jobs(count: int) -> str:
    return "1 job is" if count == 1 else f"{count or 'no'} jobs are"


def _say(session: Session, text: str) -> None:
    session.out.say(f"{_now()}  {text}")


def _now() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"


def _report(session: Session, change: Change) -> None:
    status = change.status
    if session.out.json:
        fields = change_fields(change.platform, change.before, status)
        session.out.document("change", fields)
    else:
        session.out.line(
            f"{_now()}  {short_id(change.job_id)}  {change.platform}  "
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
