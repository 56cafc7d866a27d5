"""Detaching from a running job: start its watcher, and print the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.documents import job_fields
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.interruptions import TerminatedError, termination_raises
from tao_sdk.cli.jobs import FoundJob
from tao_sdk.cli.session import Session
from tao_sdk.cli.views import come_back, outcome
from tao_sdk.cli.watch_process import WatchProcess, start_watcher

if TYPE_CHECKING:
    from tao_sdk.platforms.backend import Plan


def have_it_watched(session: Session) -> WatchProcess | None:
    """Start a watcher in the background; None, with a warning, if that fails."""
    try:
        return start_watcher(session.place)
    except OSError as error:
        # The job runs without it, and every later command looks for itself.
        session.out.warn(f"no watcher could be started: {error}")
        return None


def attended(
    session: Session, plan: Plan, work: Callable[[], int | None], *, watched: bool
) -> int | None:
    """Run `work`, which submits the plan and stays with its job; return its exit code.

    If it is interrupted, print what becomes of the job, and how to come back.
    """
    try:
        with termination_raises():
            return work()
    except KeyboardInterrupt:
        session.out.say("")  # ends the line on which the terminal shows ^C
        _say_goodbye(session, plan, "detached", watched=watched)
        return exit_codes.DETACHED
    except TerminatedError:
        _say_goodbye(session, plan, "terminated", watched=watched)
        return exit_codes.CANCELED
    except click.exceptions.Exit:
        _say_goodbye(session, plan, "the output is no longer read", watched=watched)
        raise


def say_where(session: Session, job: FoundJob) -> None:
    """The job's id, and where its results go."""
    session.out.say(f"job      {job.job_id}")
    if job.row["results_dir"]:
        session.out.say(f"results  {job.row['results_dir']}")


def report_id(session: Session, job: FoundJob) -> None:
    """The result of a command that does not stay with its job: the job's id."""
    if session.out.json:
        session.out.document("job", job_fields(job))
    else:
        session.out.line(job.job_id)


def _say_goodbye(session: Session, plan: Plan, why: str, *, watched: bool) -> None:
    """What becomes of the job of a plan, and how to come back to it."""
    row = session.place.store.get_job(plan.job_id)
    if row is None:
        session.out.warn(f"{why}; nothing was submitted")
        return
    job = FoundJob(session.place, row)
    name = short_id(job.job_id)
    if job.terminal:
        session.out.warn(f"{why}; job {name} has ended: {outcome(job)}")
        return
    watcher = have_it_watched(session) if watched else None  # we may have gone before that
    ways = come_back(job)
    if watcher is not None:
        ways += f"\nIts state is kept current in the background; log: {watcher.log}"
    if row["phase"] == "submitting":
        session.out.warn(
            f"{why} while job {name} was being submitted; whether it runs is settled by the next "
            f"of these:\n{ways}"
        )
    else:
        session.out.warn(f"{why}; job {name} goes on. Come back with:\n{ways}")
