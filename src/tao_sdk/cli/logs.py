"""`tao-sdk logs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import click

from tao_sdk.cli.help_text import examples
from tao_sdk.cli.job_argument import job_argument
from tao_sdk.cli.jobs import FoundJob, find_job, reread
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.views import state
from tao_sdk.errors import TaoError
from tao_sdk.job_store import decode
from tao_sdk.visible_text import one_line

_LIVE_SECONDS = 1.0
_ROOM_FOR_A_BAR = 90
_MOST_DRAWINGS = 4


@click.command(
    epilog=examples(
        ("tao-sdk logs -f -", "follow the newest job"),
        ("tao-sdk logs -n 50 3f2a", "the last 50 lines"),
        ("tao-sdk logs --rank 1 3f2a", "what the second node wrote"),
        ("tao-sdk logs - | grep loss", "search the whole log"),
    )
)
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("-n", "--tail", type=int, metavar="N", help="Only the last N lines.")
@click.option("--rank", type=int, metavar="N", help="Of a job on several nodes: only this one's.")
@click.option(
    "--cursor", default="", metavar="C", help="Go on behind this line (from --json output)."
)
@click.option("--raw", is_flag=True, help="At a terminal, too: every byte as the job wrote it.")
@json_option
@pass_session
def command(
    session: Session,
    job: str,
    follow: bool,
    tail: int | None,
    rank: int | None,
    cursor: str,
    raw: bool,
) -> None:
    """Print or follow the log of a job.

    Ctrl-C stops the following, not the job. With --json every line is a document with a cursor,
    from which another call can go on.

    A terminal shows characters that would act on it as escapes, such as \\x1b, and of a line that
    was drawn many times the first and the last drawing. In a pipe and with --raw the log is exact.

    Followed at a terminal, the lowest line shows how far the job is.
    """
    if rank is not None and tail is not None:
        raise click.UsageError("--tail counts the lines of all nodes: give --rank or --tail")
    found = find_job(session, job)
    if rank is not None:
        rank = _checked(rank, found)
    print_log(session, found, follow=follow, tail=tail, rank=rank, cursor=cursor, raw=raw)


def print_log(
    session: Session,
    job: FoundJob,
    *,
    follow: bool,
    tail: int | None = None,
    rank: int | None = None,
    cursor: str = "",
    raw: bool = False,
) -> None:
    """The lines of a job's log on stdout, or one document each; `raw` escapes none of them."""
    out = session.out
    stream = job.sdk.stream_logs(job.job_id, follow=follow, tail=tail, cursor=cursor)
    lines = stream if rank is None else _lines_of(rank, stream)
    if out.json:
        for text in lines:
            out.document("log-line", {"job_id": job.job_id, "text": text, "cursor": stream.cursor})
            if follow:
                out.flush()
    elif follow and not job.terminal and not out.quiet and out.can_draw:
        from tao_sdk.cli.live_line import LiveLine

        pace = max(_LIVE_SECONDS, job.sdk.backend.poll_seconds)
        with LiveLine(out, _how_far(job), pace) as live:
            for text in lines:
                live.print_above(text if raw else _shortened(text), exact=raw)
    else:
        shown = _shortened if out.on_terminal and not raw else str
        for text in lines:
            out.line(shown(text), exact=raw)
            if follow:
                out.flush()


def _shortened(line: str) -> str:
    """The first and the last drawing of a line that was drawn many times, as progress bars are."""
    drawings = line.rstrip("\r").split("\r")
    between = len(drawings) - 2
    if between <= _MOST_DRAWINGS:
        return "\r".join(drawings)
    return f"{drawings[0]}  [{between} drawings left out; --raw shows them]  {drawings[-1]}"


def _checked(rank: int, job: FoundJob) -> int | None:
    """A node of the job; None for the only one, whose lines have no label."""
    nodes = int(decode(job.row, "request").get("num_nodes", 1))
    if not 0 <= rank < nodes:
        raise click.UsageError(f"--rank {rank}: the job has {nodes} nodes, counted from 0")
    return rank if nodes > 1 else None


def _lines_of(rank: int, lines: Iterable[str]) -> Iterator[str]:
    """What one node wrote, without the node's label."""
    label = f"[rank {rank}] "
    return (line.removeprefix(label) for line in lines if line.startswith(label))


def _how_far(job: FoundJob) -> Callable[[int], str]:
    """State and progress of a job in a line, as they are whenever it is called.

    Reads the log for itself: a bar that redraws itself is one unfinished line, which the
    follower of whole lines gets only when it is done.
    """
    from tao_sdk.cli.progress_feed import ProgressFeed
    from tao_sdk.cli.table import progress_text

    feed = ProgressFeed()

    def text(width: int) -> str:
        [now] = reread([job]) or [job]
        try:
            progress = feed.update(now)
        except (TaoError, OSError):
            progress = feed.progress  # an outage also shows in the log that is followed
        far = progress_text(progress, bar=width >= _ROOM_FOR_A_BAR) if progress else ""
        return one_line(f"{state(now)}  {far or now.message}")

    return text
