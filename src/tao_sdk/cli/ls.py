"""`tao-sdk ls`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.completions import complete_platform
from tao_sdk.cli.documents import job_list
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.jobs import FoundJob, look_at, refresh
from tao_sdk.cli.parameters import time_span
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.table import show_table
from tao_sdk.models import JobState

_SHOWN = 20


@click.command(
    epilog=examples(
        ("tao-sdk ls -w", "a live view of the newest jobs"),
        ("tao-sdk ls -s running -s pending", "what is open"),
        ("tao-sdk -q ls -s error", "the ids of those that failed"),
        ("tao-sdk ls -a -p local", "all jobs of a platform"),
    )
)
@click.option("-a", "--all", "everything", is_flag=True, help="All jobs, not only the newest.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=_SHOWN,
    metavar="N",
    help=f"The newest N jobs; default {_SHOWN}.",
)
@click.option(
    "-s",
    "--status",
    type=click.Choice([state.value for state in JobState], case_sensitive=False),
    multiple=True,
    help="Only jobs in this state; may be repeated.",
)
@click.option(
    "-p",
    "--platform",
    metavar="NAME",
    shell_complete=complete_platform,
    help="Only jobs of this platform.",
)
@click.option("--no-refresh", is_flag=True, help="Show what the store knows; ask no platform.")
@click.option("-w", "--watch", is_flag=True, help="Go on, with progress, until Ctrl-C.")
@click.option(
    "--interval",
    type=time_span,
    default="2s",
    show_default=True,
    metavar="TIME",
    help="With --watch: how often, at most; some platforms are asked more rarely.",
)
@json_option
@pass_session
def command(
    session: Session,
    everything: bool,
    limit: int,
    status: tuple[str, ...],
    platform: str | None,
    no_refresh: bool,
    watch: bool,
    interval: timedelta,
) -> int:
    """List jobs, newest first.

    At a terminal a table; elsewhere tab-separated lines with whole ids. With --quiet only the ids.

    With --watch a live table at a terminal, open jobs first; elsewhere a line for every job and
    every change.
    """
    from tao_sdk.platforms.registry import canonical

    stored_as = canonical(platform) if platform else None
    listing = Listing(
        session, None if everything else limit, status, stored_as, not no_refresh, watch
    )
    if watch:
        from tao_sdk.cli.live import watch_jobs

        return watch_jobs(session, listing, interval.total_seconds())
    if everything:
        _show(session, listing.pages(session.out.warn))
        return exit_codes.OK
    jobs, more = listing.look(session.out.warn)
    _show(session, [jobs] if jobs else [], more=more)
    return exit_codes.OK


@dataclass(frozen=True)
class Listing:
    """Which jobs are meant."""

    session: Session
    limit: int | None
    status: tuple[str, ...]
    platform: str | None
    asks: bool
    """Whether the platforms are asked, or only the store."""
    open_first: bool
    """Whether jobs that have not ended come before the others, however old they are."""

    def look(
        self,
        complain: Callable[[str], None],
        look: Callable[[Sequence[FoundJob]], str] = look_at,
    ) -> tuple[list[FoundJob], bool]:
        """These jobs as they are now, and whether there are older ones."""
        store = self.session.place.store
        if self.asks and self.status:
            self._look_at_open_jobs(complain, look)
        # One more than shown tells whether there are others.
        rows = store.list_jobs(
            status=self.status or None,
            limit=None if self.limit is None else self.limit + 1,
            backend_type=self.platform,
            narrow=True,
        )
        if self.open_first and not self.status:
            newest_open = reversed(store.active_jobs(self.platform))
            rows = list({row["job_id"]: row for row in (*newest_open, *rows)}.values())
        more = self.limit is not None and len(rows) > self.limit
        jobs = self._found(rows[: self.limit])
        if self.asks and not self.status:
            jobs = refresh(jobs, complain, look)
        if self.open_first:
            jobs.sort(key=lambda job: job.terminal)
        return jobs, more

    def pages(self, complain: Callable[[str], None]) -> Iterator[list[FoundJob]]:
        """All these jobs, of which one page at a time is in memory."""
        if self.asks:
            self._look_at_open_jobs(complain, look_at)
        store = self.session.place.store
        for rows in store.job_pages(self.status or None, backend_type=self.platform):
            yield self._found(rows)

    def _look_at_open_jobs(
        self, complain: Callable[[str], None], look: Callable[[Sequence[FoundJob]], str]
    ) -> None:
        """Ask about all at once, because only then it is known which jobs are in a state."""
        refresh(self._found(self.session.place.store.active_jobs(self.platform)), complain, look)

    def _found(self, rows: Sequence[dict[str, object]]) -> list[FoundJob]:
        return [FoundJob(self.session.place, row) for row in rows]


def _show(session: Session, pages: Iterable[list[FoundJob]], *, more: bool = False) -> None:
    out = session.out
    if out.json:
        jobs = (fields for page in pages for fields in job_list(page))
        out.long_document("jobs", "jobs", jobs, more=more)
    elif out.quiet:
        for page in pages:
            for job in page:
                out.line(job.job_id)
    else:
        number = 0
        for number, page in enumerate(pages, start=1):
            show_table(out, page, heading=number == 1)
        if not number:
            out.say("no jobs; start one with: tao-sdk run -- COMMAND")
    if more:
        out.note("there are older jobs: tao-sdk ls --all shows them")
