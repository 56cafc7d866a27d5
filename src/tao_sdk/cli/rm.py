"""`tao-sdk rm`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from itertools import chain

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.job_argument import jobs_argument
from tao_sdk.cli.jobs import FoundJob, by_platform, find_jobs, refresh, reread
from tao_sdk.cli.parameters import age
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.errors import PlatformError, ValidationError


@click.command(
    epilog=examples(
        ("tao-sdk rm 3f2a", "one job and its results; asks first"),
        ("tao-sdk rm --keep-results 3f2a", "only the record"),
        ("tao-sdk rm -y --older-than 30d", "tidy up, for cron"),
    )
)
@jobs_argument(required=False)
@click.option(
    "--older-than", type=age, metavar="TIME", help="Ended jobs without a change for e.g. 30d."
)
@click.option("--keep-results", is_flag=True, help="Remove the record only.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_session
def command(
    session: Session,
    jobs: tuple[str, ...],
    older_than: timedelta | None,
    keep_results: bool,
    yes: bool,
) -> int:
    """Remove ended jobs and their results.

    A job that has not ended is refused: cancel it first. So is the parent of a job that stays.
    """
    if bool(jobs) == (older_than is not None):
        raise click.UsageError("say which: JOB... or --older-than TIME")
    if older_than is None:
        doomed = refresh(find_jobs(session, jobs), session.out.warn)
        _refuse_open(doomed)
        _refuse_parents(doomed)
    else:
        doomed = _older(session, older_than)
    if not (yes or _confirmed(session, doomed, keep_results=keep_results)):
        session.out.warn("nothing was removed")
        return exit_codes.DECLINED
    _clean_up(doomed)
    # Children are younger than their parents, and a parent can only go after them.
    for job in sorted(doomed, key=lambda job: int(job.row["seq"]), reverse=True):
        _remove(job, keep_results=keep_results)
    _report(session, doomed, keep_results=keep_results)
    return exit_codes.OK


def _clean_up(jobs: Sequence[FoundJob]) -> None:
    """Remove artefacts on the platforms first, because the records are needed to find them."""
    due = [job for job in jobs if job.row["cleanup_due"]]
    for group in by_platform(due):
        group[0].sdk.clean_up()
    for job in reread(due):
        if job.row["cleanup_due"]:
            raise PlatformError(
                f"job {job.job_id} left credentials or a container on {job.platform}, which could "
                "not be removed now; nothing was removed. Try again when it can be reached"
            )


def _older(session: Session, than: timedelta) -> list[FoundJob]:
    store = session.place.store
    ids = store.prune(older_than=than, dry_run=True)
    rows = store.jobs_by_id(ids)
    return [FoundJob(session.place, rows[job_id]) for job_id in ids if job_id in rows]


def _refuse_open(jobs: Sequence[FoundJob]) -> None:
    for job in jobs:
        if not job.terminal:
            raise ValidationError(
                f"job {job.job_id} has not ended ({job.status}); nothing was removed. "
                f"Stop it first: tao-sdk cancel {short_id(job.job_id)}"
            )


def _refuse_parents(jobs: Sequence[FoundJob]) -> None:
    """Before anything is removed: the store would keep a parent's record, its results gone."""
    going = {job.job_id for job in jobs}
    for place in {job.place for job in jobs}:
        for row in chain.from_iterable(place.store.job_pages()):
            if row["parent_job_id"] in going and row["job_id"] not in going:
                raise ValidationError(
                    f"job {row['parent_job_id']} is the parent of {row['job_id']}; nothing was "
                    "removed. Remove that one first, or both at once"
                )


def _confirmed(session: Session, jobs: Sequence[FoundJob], *, keep_results: bool) -> bool:
    if not jobs:
        return True
    what, possessive = ("1 job", "its") if len(jobs) == 1 else (f"{len(jobs)} jobs", "their")
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{what} would be removed, and there is no terminal for the question: add --yes"
        )
    for job in jobs:
        session.out.say(f"  {job.job_id}  {job.status}")
    rest = f"; {possessive} results stay" if keep_results else f" and {possessive} results"
    return click.confirm(f"Remove {what}{rest}?", err=True)


def _remove(job: FoundJob, *, keep_results: bool) -> None:
    # A job that its platform never accepted has no results.
    has_results = job.row["phase"] == "submitted"
    if not keep_results and has_results and not job.sdk.delete_job_artifacts(job.job_id):
        raise PlatformError(
            f"the results of job {job.job_id} could not be removed, so its record stays; "
            "--keep-results removes the record alone"
        )
    job.place.store.delete_job(job.job_id)


def _report(session: Session, jobs: Sequence[FoundJob], *, keep_results: bool) -> None:
    if session.out.json:
        removed = [job.job_id for job in jobs]
        session.out.document("removed", {"removed": removed, "results_kept": keep_results})
        return
    for job in jobs:
        session.out.line(job.job_id)
    if not jobs:
        session.out.say("nothing to remove")
