"""Jobs as text: a table, a block, a line. Colour and width only where a person sees them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tao_sdk.cli.humanise import ago, moment, one_line, rough_span, short_id, span
from tao_sdk.cli.jobs import FoundJob
from tao_sdk.cli.output import Output
from tao_sdk.models import JobState

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {
    JobState.PENDING.value: "yellow",
    JobState.RUNNING.value: "cyan",
    JobState.PAUSED.value: "magenta",
    JobState.COMPLETE.value: "green",
    JobState.ERROR.value: "bold red",
    JobState.CANCELED.value: "dim",
    JobState.UNKNOWN.value: "magenta",
}
_WIDE_ENOUGH_FOR_MESSAGES = 100


def show_table(out: Output, jobs: Sequence[FoundJob]) -> None:
    """The jobs as a table at a terminal, as tab-separated lines with whole ids elsewhere."""
    now = datetime.now(timezone.utc)
    if out.on_terminal:
        _print_table(_console(), jobs, now)
        return
    out.line("\t".join(_HEADINGS))
    for job in jobs:
        out.line("\t".join([job.job_id, *_cells(job, now)[1:]]))


def show_block(out: Output, job: FoundJob) -> None:
    """Everything about one job that a person asks for first."""
    facts = _facts(job, datetime.now(timezone.utc))
    width = max(len(label) for label, _ in facts)
    if not out.on_terminal:
        for label, value in facts:
            out.line(f"{label:<{width}}  {value}")
        return
    from rich.text import Text

    console = _console()
    for label, value in facts:
        line = Text(f"{label:<{width}}  ", "dim")
        line.append(value, _COLOURS[job.status] if label == "state" else "default")
        console.print(line, soft_wrap=True)


def outcome(job: FoundJob) -> str:
    """How a job ended, in a line."""
    took = f" after {span(job.seconds)}" if job.seconds is not None else ""
    code = job.row["exit_code"]
    failed = job.status == JobState.ERROR.value
    return f"{job.status}{took}" + (f", exit code {code}" if failed and code is not None else "")


def explanation(job: FoundJob) -> list[str]:
    """Why a job failed and what to do, in lines; none when there is nothing to explain."""
    return [f"{label}: {value}" for label, value in _reasons(job)]


def come_back(job: FoundJob) -> str:
    """The commands that re-attach to a job which goes on."""
    import shlex

    program = shlex.join(["tao-sdk", *job.place.options])
    name = short_id(job.job_id)
    ways = (
        (f"{program} logs -f {name}", "follow its output"),
        (f"{program} wait {name}", "wait for its end"),
        (f"{program} cancel {name}", "stop it"),
    )
    width = max(len(command) for command, _ in ways)
    return "\n".join(f"  {command:<{width}}  # {what}" for command, what in ways)


_HEADINGS = ("JOB", "PLATFORM", "STATE", "AGE", "TIME", "GPUS", "WHAT", "MESSAGE")


def _cells(job: FoundJob, now: datetime) -> list[str]:
    created = moment(job.row["created_at"])
    gpus, nodes = job.request.get("gpu_count"), job.request.get("num_nodes") or 1
    per_node = "" if gpus is None else "all" if gpus == -1 else str(gpus)
    return [
        short_id(job.job_id),
        job.platform,
        job.status,
        rough_span((now - created).total_seconds()) if created else "",
        rough_span(job.seconds) if job.seconds is not None else "",
        f"{nodes}x{per_node}" if nodes > 1 else per_node,
        _what(job),
        one_line(job.message),
    ]


def _what(job: FoundJob) -> str:
    """The model and action where they were given, else the command."""
    named = " ".join(name for name in (job.row["network_arch"], job.row["action"]) if name)
    return one_line(named or str(job.request.get("command", "")))


def _print_table(console: Console, jobs: Sequence[FoundJob], now: datetime) -> None:
    from rich.table import Table
    from rich.text import Text

    wide = console.width >= _WIDE_ENOUGH_FOR_MESSAGES
    shown = len(_HEADINGS) if wide else len(_HEADINGS) - 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in _HEADINGS[:shown]:
        flexible = heading in ("WHAT", "MESSAGE")
        table.add_column(
            heading,
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if flexible else None,
            justify="right" if heading in ("AGE", "TIME", "GPUS") else "left",
        )
    for job in jobs:
        cells = [Text(cell) for cell in _cells(job, now)]
        cells[2].stylize(_COLOURS[job.status])
        table.add_row(*cells[:shown])
    table.expand = True
    console.print(table)


def _facts(job: FoundJob, now: datetime) -> list[tuple[str, str]]:
    row, request = job.row, job.request
    backend = f" ({row['backend_job_id']})" if row["backend_job_id"] else ""
    facts = [
        ("job", job.job_id),
        ("state", _state(job)),
        ("message", one_line(job.message)),
        *_reasons(job),
        *_evidence(job),
        ("what", " ".join(name for name in (row["network_arch"], row["action"]) if name)),
        ("command", one_line(str(request.get("command", "")))),
        ("image", row["image"]),
        ("platform", f"{job.platform}{backend}"),
        ("gpus", _gpus(job)),
        ("environment", ", ".join(request.get("env_names", []))),
        ("parent", row["parent_job_id"] or ""),
        ("created", _when(row["created_at"], now)),
        ("started", _when(row["started_at"], now)),
        ("ended", _when(row["ended_at"], now)),
        ("results", row["results_dir"]),
        ("address", job.uri),
    ]
    return [(label, value) for label, value in facts if value]


def _state(job: FoundJob) -> str:
    if job.terminal:
        return outcome(job)
    return f"{job.status} for {span(job.seconds)}" if job.seconds is not None else job.status


def _reasons(job: FoundJob) -> list[tuple[str, str]]:
    failure = job.failure
    if failure is None:
        return []
    return [
        ("cause", f"{one_line(str(failure['cause']))} [{failure['err_class']}]"),
        ("suggestion", one_line(str(failure["suggestion"]))),
    ]


def _evidence(job: FoundJob) -> list[tuple[str, str]]:
    lines = (job.failure or {}).get("evidence", [])
    return [("" if number else "evidence", one_line(line)) for number, line in enumerate(lines)]


def _gpus(job: FoundJob) -> str:
    gpus, nodes = job.request.get("gpu_count"), job.request.get("num_nodes") or 1
    if gpus is None:
        return ""
    amount = "all" if gpus == -1 else str(gpus)
    return f"{amount} on each of {nodes} nodes" if nodes > 1 else amount


def _when(text: str, now: datetime) -> str:
    at = moment(text)
    if at is None:
        return text
    return f"{ago((now - at).total_seconds())} ({at.astimezone():%Y-%m-%d %H:%M:%S %Z})"


def _console() -> Console:
    from rich.console import Console

    # What users named their things is text, not markup, and is not to be re-coloured.
    return Console(markup=False, highlight=False, emoji=False)
