"""`tao-sdk wait`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.documents import job_list
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.job_argument import jobs_argument
from tao_sdk.cli.jobs import FoundJob, by_platform, find_jobs, reread
from tao_sdk.cli.parameters import time_span
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.views import explanation, outcome


@click.command(
    epilog=examples(
        ("tao-sdk wait 3f2a 9c1e && make report", "go on when both went well"),
        ("tao-sdk wait --timeout 2h -", "give up after two hours"),
    )
)
@jobs_argument()
@click.option(
    "--timeout", type=time_span, metavar="TIME", help="Give up after e.g. 90, 90s, 5m, 2h."
)
@json_option
@pass_session
def command(session: Session, jobs: tuple[str, ...], timeout: timedelta | None) -> int:
    """Wait until jobs have ended; the exit code mirrors them.

    With several jobs it is that of the first, in the order given, that is not Complete.
    """
    found = find_jobs(session, jobs)
    _wait(found, None if timeout is None else timeout.total_seconds())
    ended = reread(found)
    if session.out.json:
        session.out.document("status", {"jobs": job_list(ended)})
    else:
        for job in ended:
            session.out.line(f"{short_id(job.job_id)}  {outcome(job)}")
            for line in explanation(job):
                session.out.say(f"  {line}")
    return next((code for job in ended if (code := job.exit_code)), exit_codes.OK)


def _wait(jobs: Sequence[FoundJob], seconds: float | None) -> None:
    """One platform after the other; meanwhile the jobs of all of them go on."""
    deadline = None if seconds is None else time.monotonic() + seconds
    for group in by_platform(jobs):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        group[0].sdk.wait_all([job.job_id for job in group], timeout=left)
