"""`tao-sdk status`."""

from __future__ import annotations

import click

from tao_sdk.cli.documents import job_list
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.job_argument import jobs_argument
from tao_sdk.cli.jobs import find_jobs, refresh
from tao_sdk.cli.progress_feed import ProgressFeeds
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.views import show_block


@click.command(
    epilog=examples(
        ("tao-sdk status -", "the newest job"),
        ("tao-sdk status 3f2a 9c1e", "two jobs"),
        ("tao-sdk status --json - | jq '.jobs[0].progress'", "how far it is"),
    )
)
@jobs_argument()
@json_option
@pass_session
def command(session: Session, jobs: tuple[str, ...]) -> None:
    """Show what is known about jobs.

    With how far they are and, for a failed job, the cause and what to do. The exit code is 0
    whatever the state is.
    """
    found = refresh(find_jobs(session, jobs), session.out.warn)
    progress = ProgressFeeds(session.out.warn).update(found)
    if session.out.json:
        session.out.document("status", {"jobs": job_list(found, progress)})
        return
    for number, job in enumerate(found):
        if number:
            session.out.line("")
        show_block(session.out, job, progress.get(job.job_id))
