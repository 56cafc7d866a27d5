"""Jobs as a table at a terminal, as tab-separated lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tao_sdk.cli.humanise import command_text, rough_span, seconds_between, short_id
from tao_sdk.cli.jobs import FoundJob
from tao_sdk.cli.output import Output
from tao_sdk.models import JobState
from tao_sdk.visible_text import one_line, visible

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from tao_sdk.progress import Progress

COLOURS = {
    JobState.PENDING.value: "yellow",
    JobState.RUNNING.value: "cyan",
    JobState.PAUSED.value: "magenta",
    JobState.COMPLETE.value: "green",
    JobState.ERROR.value: "bold red",
    JobState.CANCELED.value: "dim",
    JobState.UNKNOWN.value: "magenta",
}

_WIDE = 100
_COLUMNS = ("JOB", "PLATFORM", "STATE", "AGE", "TIME", "GPUS", "WHAT", "MESSAGE")
_NARROW = ("JOB", "PLATFORM", "STATE", "AGE", "TIME", "GPUS", "WHAT")
_LIVE = ("JOB", "PLATFORM", "STATE", "AGE", "TIME", "GPUS", "WHAT", "PROGRESS")
_LIVE_NARROW = ("JOB", "STATE", "AGE", "TIME", "WHAT", "PROGRESS")
_SHARES = {"WHAT": 2, "MESSAGE": 2, "PROGRESS": 7}
"""Columns that share the width which the others leave."""
_NUMBERS = ("AGE", "TIME", "GPUS")
_BAR_WIDTH = 13


def show_table(out: Output, jobs: Sequence[FoundJob], *, heading: bool = True) -> None:
    """The jobs as a table at a terminal, as tab-separated lines with whole ids elsewhere.

    Without a heading it goes on where another table ended.
    """
    now = datetime.now(timezone.utc)
    if out.on_terminal:
        from tao_sdk.cli.consoles import console

        screen = console()
        columns = _COLUMNS if screen.width >= _WIDE else _NARROW
        screen.print(_table(columns, [_cells(job, now) for job in jobs], heading=heading))
        return
    if heading:
        out.line("\t".join(_COLUMNS))
    for job in jobs:
        cells = {**_cells(job, now), "JOB": job.job_id}
        out.line("\t".join(visible(cells[column], lines=False) for column in _COLUMNS))


def live_table(jobs: Sequence[FoundJob], progress: Mapping[str, Progress], width: int) -> Table:
    """The jobs with how far they are, as a terminal of this width shows them now."""
    now, wide, rows = datetime.now(timezone.utc), width >= _WIDE, []
    for job in jobs:
        far = progress.get(job.job_id)
        cells = _cells(job, now)
        # After its end the outcome matters more than the progress.
        shown = cells["MESSAGE"] if far is None or job.terminal else progress_text(far, bar=wide)
        rows.append({**cells, "PROGRESS": shown})
    return _table(_LIVE if wide else _LIVE_NARROW, rows)


def progress_text(progress: Progress, *, bar: bool = True) -> str:
    """A bar, or only its percentage, where a part of the whole is known, and the figures."""
    from tao_sdk.progress import render_bar  # the package takes its time to load

    width = _BAR_WIDTH if bar else 0
    drawn = "" if progress.fraction is None else f"{render_bar(progress, width)}  "
    return drawn + one_line(progress.summary())


def _cells(job: FoundJob, now: datetime) -> dict[str, str]:
    age = seconds_between(job.row["created_at"], "", now)
    gpus, nodes = job.request.get("gpu_count"), job.request.get("num_nodes") or 1
    per_node = "" if gpus is None else "all" if gpus == -1 else str(gpus)
    return {
        "JOB": short_id(job.job_id),
        "PLATFORM": job.platform,
        "STATE": job.status,
        "AGE": rough_span(age) if age is not None else "",
        "TIME": rough_span(job.seconds) if job.seconds is not None else "",
        "GPUS": f"{nodes}x{per_node}" if nodes > 1 else per_node,
        "WHAT": _what(job),
        "MESSAGE": one_line(job.message),
    }


def _what(job: FoundJob) -> str:
    """The model and action where they were given, else the command."""
    named = " ".join(name for name in (job.row["network_arch"], job.row["action"]) if name)
    return one_line(named) or command_text(str(job.request.get("command", "")))


def _table(
    columns: Sequence[str], rows: Sequence[Mapping[str, str]], *, heading: bool = True
) -> Table:
    from rich.table import Table

    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
        expand=True,
        show_header=heading,
    )
    for column in columns:
        table.add_column(
            column,
            no_wrap=True,
            overflow="ellipsis",
            ratio=_SHARES.get(column),
            justify="right" if column in _NUMBERS else "left",
        )
    for row in rows:
        table.add_row(*(_cell(column, row[column]) for column in columns))
    return table


def _cell(column: str, text: str) -> Text:
    from tao_sdk.cli.consoles import plain

    return plain(text, COLOURS[text] if column == "STATE" else "")
