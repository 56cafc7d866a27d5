"""`tao-sdk status`."""

from __future__ import annotations

import click

from tao_sdk.cli.documents import job_list
from tao_sdk.cli.jobs import find_jobs, refresh
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.views import show_block


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@json_option
@pass_session
def command(session: Session, jobs: tuple[str, ...]) -> None:
    """Show what is known about jobs.

    For a failed job with its cause and what to do. The exit code is 0 whatever the state is.
    """
    found = refresh(session, find_jobs(session, jobs))
    if session.out.json:
        session.out.document("status", job_list(found))
        return
    for number, job in enumerate(found):
        if number:
            session.out.line("")
        show_block(session.out, job)
