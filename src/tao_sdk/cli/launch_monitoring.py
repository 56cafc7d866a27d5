"""Watching a launched job: reports until it has ended, or the way back to it."""

from __future__ import annotations

from datetime import datetime

from tao_sdk.cli.detaching import say_where
from tao_sdk.cli.documents import job_fields
from tao_sdk.cli.jobs import FoundJob, reread
from tao_sdk.cli.progress_feed import ProgressFeeds
from tao_sdk.cli.session import Session
from tao_sdk.cli.views import explanation, outcome, state
from tao_sdk.cli.watch_process import WatchProcess
from tao_sdk.errors import JobNotFoundError
from tao_sdk.launch import reports, status_command
from tao_sdk.visible_text import one_line


def introduce(session: Session, job: FoundJob, watcher: WatchProcess | None) -> None:
    """The job's id, its places, and the command that shows its state from any shell."""
    out = session.out
    say_where(session, job)
    if watcher is not None:
        which = "one that runs already" if watcher.process is None else "a new one"
        out.say(f"watcher  {which}; log: {watcher.log}")
    back = status_command(job.job_id, session.place.state_file)
    out.say(f"status   {back}")
    if out.json:
        fields = {
            "job_id": job.job_id,
            "results_dir": job.row["results_dir"] or "",
            "status_command": back,
            "watcher_log": None if watcher is None else str(watcher.log),
        }
        out.document("launched", fields)


def attend(session: Session, job: FoundJob, minutes: float) -> int:
    """Report on the job to its end; returns its exit code."""
    out = session.out
    feeds = ProgressFeeds(out.warn)
    out.say(f"reports every {minutes:g} min until it has ended; Ctrl-C detaches, the job goes on")
    for _ in reports(job.sdk, job.job_id, minutes):
        job = _again(job)
        progress = feeds.update([job]).get(job.job_id)
        if out.json:
            out.document("job", job_fields(job, progress))
        elif not job.terminal:
            far = progress.summary() if progress is not None else ""
            now = f"{datetime.now().astimezone():%H:%M:%S}"
            out.line(f"{now}  {state(job)}  {one_line(far or job.message)}".rstrip())
        out.flush()
    job.sdk.get_failure_analysis(job.job_id)
    job = _again(job)
    if not out.json:
        out.line(f"{datetime.now().astimezone():%H:%M:%S}  {outcome(job)}")
    for line in explanation(job):
        out.say(f"  {line}")
    return job.exit_code


def _again(job: FoundJob) -> FoundJob:
    found = reread([job])
    if not found:
        raise JobNotFoundError(f"job {job.job_id} was removed from the store")
    return found[0]
