"""`tao-sdk pull`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.job_argument import job_argument
from tao_sdk.cli.jobs import FoundJob, find_job, refresh
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.platforms.results import results_of
from tao_sdk.progress.wording import amount_of_bytes
from tao_sdk.results import (
    Outcome,
    PullPlan,
    ResultSource,
    Selection,
    State,
    copy_results,
    plan_pull,
)
from tao_sdk.visible_text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress


@click.command(
    epilog=examples(
        ("tao-sdk pull -", "of the newest job"),
        ("tao-sdk pull 3f2a best --include '*.pth'", "only checkpoints, to best/"),
        ("tao-sdk pull 3f2a --exclude 'logs/'", "all but a folder"),
        ("tao-sdk pull --dry-run -", "what would be copied"),
    )
)
@job_argument
@click.argument(
    "dest", required=False, type=click.Path(file_okay=False, path_type=Path), metavar="[DEST]"
)
@click.option("--include", multiple=True, metavar="GLOB", help="Only these; may be repeated.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not these; may be repeated.")
@click.option("--verify", is_flag=True, help="Compare contents, not only sizes and times.")
@click.option("--dry-run", is_flag=True, help="Show what would be copied; copy nothing.")
@json_option
@pass_session
def command(
    session: Session,
    job: str,
    dest: Path | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    verify: bool,
    dry_run: bool,
) -> int:
    """Fetch the results of a job.

    Copies what is missing in DEST (by default a folder with the job's short id) or is not the
    same there, also while the job runs. Pull again to go on after an interruption, or for what
    was written meanwhile. A file appears under its name only when it is whole; nothing in DEST is
    removed. The results may be in a folder of this machine, in an S3 store, on a SLURM cluster, on
    a volume of a Kubernetes cluster, or on a Brev instance, which may go once it was all fetched.

    A GLOB is compared with the path, with the name, and with the folders above: '*.pth', 'train',
    'train/*.json'.
    """
    [found] = refresh([find_job(session, job)], session.out.warn)
    source = results_of(found.sdk, found.job_id)
    destination = dest or Path(short_id(found.job_id))
    plan = plan_pull(source, destination, Selection(include, exclude), verify=verify)
    outcomes = _would(plan) if dry_run else _copied(session, source, plan)
    from tao_sdk.cli.submission_feed import told_meanwhile  # brings logging

    try:
        with told_meanwhile(session.out):
            counts = _report(session, outcomes, dry_run=dry_run)
    except KeyboardInterrupt:
        session.out.warn(f"interrupted; whole files are in {plan.destination}: pull again to go on")
        return exit_codes.DETACHED
    _summarise(session, found, source, plan, counts, dry_run=dry_run)
    return exit_codes.INCOMPLETE if counts.incomplete else exit_codes.OK


class _Counts:
    """How many entries, and bytes, came to which end."""

    def __init__(self) -> None:
        self.entries: Counter[State] = Counter()
        self.bytes: Counter[State] = Counter()

    def add(self, outcome: Outcome) -> None:
        self.entries[outcome.state] += 1
        self.bytes[outcome.state] += outcome.size

    @property
    def incomplete(self) -> bool:
        return any(state.incomplete and count for state, count in self.entries.items())


def _would(plan: PullPlan) -> Iterator[Outcome]:
    """What `copy_results` would yield if all went well."""
    yield from (Outcome(entry.path, State.SKIPPED, message=entry.problem) for entry in plan.unfit)
    for entry in plan.unreadable:
        yield Outcome(entry.path, State.FAILED, message=entry.problem)
    yield from (Outcome(entry.path, State.PRESENT, entry.size) for entry in plan.present)
    yield from (Outcome(entry.path, State.COPIED, entry.size) for entry in plan.to_copy)


def _copied(session: Session, source: ResultSource, plan: PullPlan) -> Iterator[Outcome]:
    """Copy, with a bar at a terminal."""
    if not session.out.on_terminal or session.out.quiet or not plan.to_copy:
        yield from copy_results(source, plan)
        return
    with _bar(plan) as advance:
        yield from copy_results(source, plan, advance)


@contextlib.contextmanager
def _bar(plan: PullPlan) -> Iterator[Callable[[int], None]]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from tao_sdk.cli.consoles import console

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar: Progress = Progress(*columns, console=console(), transient=True)
    task = bar.add_task("", total=plan.bytes_to_copy)
    with bar:
        yield lambda amount: bar.advance(task, amount)


def _report(session: Session, outcomes: Iterable[Outcome], *, dry_run: bool) -> _Counts:
    """Report each entry as it is done; at a terminal only those that went wrong."""
    out, counts = session.out, _Counts()
    for outcome in outcomes:
        counts.add(outcome)
        if outcome.message:
            out.warn(one_line(f"{outcome.state}: {outcome.path}: {outcome.message}"))
        if out.json:
            fields = {
                "path": outcome.path,
                "state": outcome.state.value,
                "size": outcome.size,
                "message": outcome.message,
            }
            out.document("pulled-file", fields)
        elif outcome.state is State.COPIED and (dry_run or not out.on_terminal):
            out.line(one_line(outcome.path))
        out.flush()
    return counts


def _summarise(
    session: Session,
    job: FoundJob,
    source: ResultSource,
    plan: PullPlan,
    counts: _Counts,
    *,
    dry_run: bool,
) -> None:
    out, entries = session.out, counts.entries
    if out.json:
        fields = {
            "job_id": job.job_id,
            "source": source.address,
            "destination": str(plan.destination),
            "complete": not counts.incomplete,
            "dry_run": dry_run,
            "bytes": counts.bytes[State.COPIED],
            "counts": {state.value: entries[state] for state in State},
        }
        out.document("pulled", fields)
    verb = "to copy" if dry_run else "copied"
    amount = amount_of_bytes(counts.bytes[State.COPIED], None)
    parts = [f"{_files(entries[State.COPIED])} {verb} ({amount})"]
    parts += [f"{entries[state]} {words}" for state, words in _WORDS.items() if entries[state]]
    out.say(f"{', '.join(parts)}: {plan.destination}")
    if not job.terminal:
        out.note("the job has not ended: pull again for what it writes from now on")


_WORDS = {
    State.PRESENT: "there already",
    State.SKIPPED: "skipped",
    State.GONE: "gone meanwhile",
    State.CHANGED: "being written",
    State.FAILED: "failed",
}


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count or 'no'} files"
