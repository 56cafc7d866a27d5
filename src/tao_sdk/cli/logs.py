"""`tao-sdk logs`."""

from __future__ import annotations

import click

from tao_sdk.cli.jobs import FoundJob, find_job
from tao_sdk.cli.session import Session, json_option, pass_session


@click.command()
@click.argument("job", metavar="JOB")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("-n", "--tail", type=int, metavar="N", help="Only the last N lines.")
@click.option(
    "--cursor", default="", metavar="C", help="Go on behind this line (from --json output)."
)
@json_option
@pass_session
def command(session: Session, job: str, follow: bool, tail: int | None, cursor: str) -> None:
    """Print or follow the log of a job.

    Ctrl-C stops the following, not the job. With --json every line is a document with a cursor,
    from which another call can go on.
    """
    print_log(session, find_job(session, job), follow=follow, tail=tail, cursor=cursor)


def print_log(
    session: Session, job: FoundJob, *, follow: bool, tail: int | None = None, cursor: str = ""
) -> None:
    """The lines of a job's log on stdout, as they are, or one document each."""
    out = session.out
    stream = job.sdk.stream_logs(job.job_id, follow=follow, tail=tail, cursor=cursor)
    for text in stream:
        if out.json:
            line = {"job_id": job.job_id, "text": text, "cursor": stream.cursor}
            out.document("log-line", line)
        else:
            out.line(text)
        if follow:
            out.flush()
