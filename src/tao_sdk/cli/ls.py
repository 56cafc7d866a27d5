"""`tao-sdk ls`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tao_sdk.cli.documents import job_list
from tao_sdk.cli.jobs import FoundJob, refresh
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.views import show_table
from tao_sdk.models import JobState

_SHOWN = 20


@click.command()
@click.option("-a", "--all", "everything", is_flag=True, help="All jobs, not only the newest.")
@click.option(
    "-n",
    "--limit",
    type=int,
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
@click.option("-p", "--platform", metavar="NAME", help="Only jobs of this platform.")
@click.option("--no-refresh", is_flag=True, help="Show what the store knows; ask no platform.")
@json_option
@pass_session
def command(
    session: Session,
    everything: bool,
    limit: int,
    status: tuple[str, ...],
    platform: str | None,
    no_refresh: bool,
) -> None:
    """List jobs, newest first.

    At a terminal a table; elsewhere tab-separated lines with whole ids. With --quiet only the ids.
    """
    shown = None if everything else limit
    if not no_refresh and status:
        # Which jobs are in that state is known only after asking about all open ones.
        refresh(session, _found(session, session.place.store.active_jobs(platform)))
    # One more than shown tells whether there are others.
    rows = session.place.store.list_jobs(
        status=status or None,
        limit=None if shown is None else shown + 1,
        backend_type=platform,
    )
    more = shown is not None and len(rows) > shown
    jobs = _found(session, rows[:shown])
    if not no_refresh and not status:
        jobs = refresh(session, jobs)
    _show(session, jobs, more=more)


def _found(session: Session, rows: Sequence[dict[str, object]]) -> list[FoundJob]:
    return [FoundJob(session.place, row) for row in rows]


def _show(session: Session, jobs: Sequence[FoundJob], *, more: bool) -> None:
    out = session.out
    if out.json:
        out.document("jobs", {**job_list(jobs), "more": more})
    elif out.quiet:
        for job in jobs:
            out.line(job.job_id)
    elif jobs:
        show_table(out, jobs)
    else:
        out.say("no jobs; start one with: tao-sdk run -- COMMAND")
    if more:
        out.note("there are older jobs: tao-sdk ls --all shows them")
