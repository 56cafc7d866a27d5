"""`tao-sdk explain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from tao_sdk.cli.help_text import examples
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.job_argument import jobs_argument
from tao_sdk.cli.jobs import FoundJob, find_jobs, last_known, refresh
from tao_sdk.cli.output import Output
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.views import Facts, as_lines, evidence, print_facts, state
from tao_sdk.errors import TaoError
from tao_sdk.models import JobState
from tao_sdk.platforms.capabilities import ExplainsPending
from tao_sdk.visible_text import one_line


@click.command(
    epilog=examples(
        ("tao-sdk explain -", "the newest job"),
        ("tao-sdk explain --json - | jq -r .failure.suggestion", "what to do"),
        ("tao-sdk -q ls -s error | xargs tao-sdk explain", "all failed"),
    )
)
@jobs_argument()
@json_option
@pass_session
def command(session: Session, jobs: tuple[str, ...]) -> None:
    """Show why jobs failed and what to do about it.

    The explanation is stored when a job ends, so that it is there after the platform has
    forgotten the job. A pending job is explained where its platform tells that it will never
    start. The exit code is 0, also for a job that did not fail.
    """
    complained: set[str] = set()

    def complain(text: str) -> None:
        if text not in complained:
            complained.add(text)
            session.out.warn(text)

    for number, job in enumerate(refresh(find_jobs(session, jobs), complain)):
        failure = job.failure or _why_stuck(job, complain)
        if session.out.json:
            session.out.document("explanation", _fields(job, failure))
            continue
        if number:
            session.out.line("")
        if failure is None:
            session.out.line(_nothing_to_explain(job))
        else:
            _show(session.out, _facts(job, failure))


def _why_stuck(job: FoundJob, complain: Callable[[str], None]) -> dict[str, Any] | None:
    """Why a pending job will never start; None while it may, or where that is not known."""
    if job.status != JobState.PENDING.value:
        return None
    try:
        if not isinstance(job.sdk.backend, ExplainsPending):
            return None
        return job.sdk.get_failure_analysis(job.job_id)
    except TaoError as error:
        complain(last_known(job.platform, error))
        return None


def _fields(job: FoundJob, failure: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "platform": job.platform,
        "status": job.status,
        "failed": job.status == JobState.ERROR.value,
        "message": job.message if failure else _nothing_to_explain(job),
        "failure": failure,
    }


def _nothing_to_explain(job: FoundJob) -> str:
    name = short_id(job.job_id)
    if job.status == JobState.ERROR.value:
        return f"{name}  failed, and its platform has not told why yet: {one_line(job.message)}"
    if job.terminal:
        return f"{name}  did not fail: {state(job)}"
    return f"{name}  has not ended: {state(job)}"


def _facts(job: FoundJob, failure: Mapping[str, Any]) -> Facts:
    facts = [
        ("job", job.job_id),
        ("state", state(job)),
        ("cause", one_line(str(failure.get("cause", "")))),
        ("class", str(failure.get("err_class", ""))),
        ("suggestion", one_line(str(failure.get("suggestion", "")))),
        ("retriable", _retriable(failure)),
        ("exit code", "" if failure.get("exit_code") is None else str(failure["exit_code"])),
        ("where", _where(job, failure)),
        *_events(job, failure),
        *evidence(failure),
        ("whole log", f"tao-sdk logs {short_id(job.job_id)}" if job.terminal else ""),
    ]
    return as_lines(facts)


def _retriable(failure: Mapping[str, Any]) -> str:
    if failure.get("retriable"):
        return "yes: another attempt may go well"
    return "no: change something before another attempt"


def _where(job: FoundJob, failure: Mapping[str, Any]) -> str:
    rank, node = failure.get("rank"), failure.get("node")
    parts = [f"rank {rank}" if _several_nodes(job) and rank is not None else ""]
    parts += [f"on {node}" if node else ""]
    return " ".join(part for part in parts if part)


def _several_nodes(job: FoundJob) -> bool:
    """With one node, the rank is left out."""
    return (job.request.get("num_nodes") or 1) > 1


def _events(job: FoundJob, failure: Mapping[str, Any]) -> Facts:
    events = [
        event
        for event in failure.get("job_failure_by_node_event", [])
        if _several_nodes(job) or event["node_event_name"] != "rank 0"
    ]
    return [
        ("" if number else "events", one_line(f"{event['node_event_name']}: {event['message']}"))
        for number, event in enumerate(events)
    ]


def _show(out: Output, facts: Facts) -> None:
    if not out.on_terminal:
        print_facts(out, facts)
        return
    from rich.table import Table

    from tao_sdk.cli.consoles import console, plain

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in facts:
        grid.add_row(label, plain(value, _STYLES.get(label, "")))
    console().print(grid)


_STYLES = {"cause": "bold red", "suggestion": "bold", "state": "red"}
