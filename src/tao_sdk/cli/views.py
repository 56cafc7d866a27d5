"""A job as text: a block, a line. Colour only where a person sees it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tao_sdk.cli.humanise import ago, command_text, moment, short_id, span
from tao_sdk.cli.jobs import FoundJob
from tao_sdk.cli.output import Output
from tao_sdk.cli.table import COLOURS, progress_text
from tao_sdk.models import JobState
from tao_sdk.visible_text import one_line, visible

if TYPE_CHECKING:
    from tao_sdk.progress import Progress

Facts = list[tuple[str, str]]
"""What is known, label by label; "" continues the label above."""


def show_block(out: Output, job: FoundJob, progress: Progress | None) -> None:
    """Everything about one job that a person asks for first."""
    facts = _facts(job, progress, datetime.now(timezone.utc))
    if not out.on_terminal:
        print_facts(out, facts)
        return
    from tao_sdk.cli.consoles import console, plain

    width = _label_width(facts)
    for label, value in facts:
        line = plain(f"{label:<{width}}  ", "dim")
        line.append_text(plain(value, COLOURS[job.status] if label == "state" else "default"))
        console().print(line, soft_wrap=True)


def print_facts(out: Output, facts: Facts) -> None:
    """Labels and values as plain lines."""
    width = _label_width(facts)
    for label, value in facts:
        out.line(f"{label:<{width}}  {value}")


def _label_width(facts: Facts) -> int:
    return max(len(label) for label, _ in facts)


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
    """The commands that re-attach to a running job."""
    import shlex

    program = shlex.join(["tao-sdk", *job.place.options])
    name = short_id(job.job_id)
    ways = (
        (f"{program} logs -f {name}", "follow its output"),
        (f"{program} status {name}", "see how it is"),
        (f"{program} wait {name}", "wait for its end"),
        (f"{program} cancel {name}", "stop it"),
    )
    width = max(len(command) for command, _ in ways)
    return "\n".join(f"  {command:<{width}}  # {what}" for command, what in ways)


def _facts(job: FoundJob, progress: Progress | None, now: datetime) -> Facts:
    row, request = job.row, job.whole_request
    backend = f" ({row['backend_job_id']})" if row["backend_job_id"] else ""
    facts = [
        ("job", job.job_id),
        ("state", state(job)),
        ("message", one_line(job.message)),
        ("progress", progress_text(progress) if progress else ""),
        *_reasons(job),
        *evidence(job.failure),
        ("what", " ".join(name for name in (row["network_arch"], row["action"]) if name)),
        ("command", command_text(str(request.get("command", "")))),
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
    return as_lines(facts)


def as_lines(facts: Facts) -> Facts:
    """Those that have a value, each on a line of its own whatever is in it."""
    return [(label, visible(value, lines=False)) for label, value in facts if value]


def state(job: FoundJob) -> str:
    """The state of a job and since when it is in it."""
    if job.terminal:
        return outcome(job)
    return f"{job.status} for {span(job.seconds)}" if job.seconds is not None else job.status


def _reasons(job: FoundJob) -> Facts:
    failure = job.failure
    if failure is None:
        return []
    return [
        ("cause", f"{one_line(str(failure['cause']))} [{failure['err_class']}]"),
        ("suggestion", one_line(str(failure.get("suggestion", "")))),
    ]


def evidence(failure: Mapping[str, Any] | None) -> Facts:
    """The lines that the cause was read from."""
    lines = (failure or {}).get("evidence", [])
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
