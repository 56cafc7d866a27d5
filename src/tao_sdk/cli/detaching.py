"""Leaving a job that goes on: who keeps watching it, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.jobs import FoundJob
from tao_sdk.cli.session import Session
from tao_sdk.cli.views import come_back, outcome
from tao_sdk.cli.watch_process import WatchProcess, start_watcher

if TYPE_CHECKING:
    from tao_sdk.platforms.backend import Plan


def have_it_watched(session: Session) -> WatchProcess | None:
    """A watcher in the background; None when none could be started, which is said."""
    try:
        return start_watcher(session.place)
    except OSError as error:
        # The job runs already, and goes on without: every later command looks for itself.
        session.out.warn(f"no watcher could be started: {error}")
        return None


def say_goodbye(session: Session, plan: Plan, why: str, *, watched: bool) -> None:
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
    if watched:
        have_it_watched(session)  # we may have been interrupted before that
    if row["phase"] == "submitting":
        session.out.warn(
            f"{why} while job {name} was being submitted; whether it runs is settled by the next "
            f"of these:\n{come_back(job)}"
        )
    else:
        session.out.warn(f"{why}; job {name} goes on. Come back with:\n{come_back(job)}")
