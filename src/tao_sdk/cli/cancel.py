"""`tao-sdk cancel`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.documents import job_list
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.job_argument import jobs_argument
from tao_sdk.cli.jobs import FoundJob, find_jobs, reread
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.views import outcome

_AT_ONCE = 16


@click.command(
    epilog=examples(
        ("tao-sdk cancel -", "the newest job"),
        ("tao-sdk -q ls -s pending | xargs tao-sdk cancel", "all that have not begun"),
    )
)
@jobs_argument()
@json_option
@pass_session
def command(session: Session, jobs: tuple[str, ...]) -> int:
    """Stop jobs.

    Returns when they have ended: a job gets SIGTERM, some seconds to save its work, then SIGKILL.
    Jobs that had ended before stay as they were.
    """
    found = find_jobs(session, jobs)
    for job in found:
        job.sdk.backend  # noqa: B018 - made here, so that the threads below share it
    with ThreadPoolExecutor(min(_AT_ONCE, len(found))) as pool:
        list(pool.map(_cancel, found))
    now = reread(found)
    if session.out.json:
        session.out.document("status", {"jobs": job_list(now)})
    else:
        for job in now:
            session.out.line(f"{short_id(job.job_id)}  {outcome(job)}")
    going_on = [job for job in now if not job.terminal]
    for job in going_on:
        session.out.warn(
            f"{job.job_id} was asked to stop and has not ended yet: {job.message}\n"
            f"see: tao-sdk status {short_id(job.job_id)}"
        )
    return exit_codes.SDK_FAILED if going_on else exit_codes.OK


def _cancel(job: FoundJob) -> None:
    job.sdk.cancel_job(job.job_id)
