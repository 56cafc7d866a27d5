"""`tao-sdk preflight`."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tao_sdk import settings
from tao_sdk.cli import exit_codes
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.session import Session, json_option, pass_session

if TYPE_CHECKING:
    from rich.console import Console

    from tao_sdk.preflight import Check, PreflightReport, PreflightRequest
    from tao_sdk.skills import SkillBank

_MARKS = {
    "passed": ("✓", "green"),
    "warning": ("!", "yellow"),
    "failed": ("✗", "bold red"),
    "skipped": ("-", "dim"),
}
_LONGEST_NAME = 28
_SECONDS = 0.5


@click.command(
    epilog=examples(
        ("tao-sdk preflight -p slurm --path train=/lustre/train", "cluster and data"),
        ("tao-sdk preflight -p docker --image IMAGE --gpus 2", "daemon and GPUs"),
        ("tao-sdk preflight -p k8s --path train=s3://bucket/x", "rights and bucket"),
        ("tao-sdk preflight -p slurm --json | jq '.ok'", "for programs"),
    )
)
@click.option("-p", "--platform", metavar="NAME", help="Name or alias; default: TAO_PLATFORM.")
@click.option(
    "--path", "paths", multiple=True, metavar="LABEL=PATH", help="Data that must be there."
)
@click.option(
    "--require",
    "fields",
    multiple=True,
    metavar="LABEL=F[,F...]",
    help="Fields that each record of that JSON file must have.",
)
@click.option(
    "--sample", type=click.IntRange(1), default=20, metavar="N", help="Records to look at."
)
@click.option("--image", default="", metavar="IMAGE", help="Container image of the job.")
@click.option(
    "--gpu-smoke-image", default="", metavar="IMAGE", help="Image of what looks for GPUs."
)
@click.option("--pull-smoke-image", is_flag=True, help="Pull it if it is missing; it stays.")
@click.option(
    "--gpus", type=click.IntRange(-1), metavar="N", help="GPUs that the job needs; 0 for none."
)
@click.option("--gpu-memory", type=float, metavar="GB", help="Memory that each GPU must have.")
@click.option("--gpu-arch", multiple=True, metavar="SM", help="Architecture of the target's GPUs.")
@click.option(
    "--target-gpu-count", type=click.IntRange(0), metavar="N", help="How many the target has."
)
@click.option(
    "--target-gpu-memory-gb",
    multiple=True,
    metavar="GB",
    help="Memory of the target's GPUs: once, or once for each.",
)
@click.option(
    "--batch",
    "batches",
    multiple=True,
    metavar="LABEL=BATCH,SHARDS",
    help="Each shard of that file must have a whole batch.",
)
@click.option("--credential", multiple=True, metavar="NAME", help="Variable that the model needs.")
@click.option("--docker-host", default="", metavar="URL", help="Docker daemon to look at.")
@click.option(
    "--confirm-mounts", is_flag=True, help="You have proof that mounted paths are in the job."
)
@click.option(
    "--skip-platform-access", is_flag=True, help="Ask no platform. Not for a real launch."
)
@click.option("--bank", type=click.Path(path_type=Path), metavar="DIR", help="Root of the bank.")
@json_option
@pass_session
def command(
    session: Session,
    platform: str | None,
    paths: tuple[str, ...],
    fields: tuple[str, ...],
    sample: int,
    image: str,
    gpu_smoke_image: str,
    pull_smoke_image: bool,
    gpus: int | None,
    gpu_memory: float | None,
    gpu_arch: tuple[str, ...],
    target_gpu_count: int | None,
    target_gpu_memory_gb: tuple[str, ...],
    batches: tuple[str, ...],
    credential: tuple[str, ...],
    docker_host: str,
    confirm_mounts: bool,
    skip_platform_access: bool,
    bank: Path | None,
) -> int:
    """Check everything that a launch needs, before anything is made.

    Every check runs; results come as they are found. Nothing remains of it. What cannot be
    proven has failed: the exit code is then 1, and below is what to do.
    """
    from tao_sdk.preflight import PreflightRequest
    from tao_sdk.preflight.arguments import (
        read_batches,
        read_gigabytes,
        read_lists,
        read_paths,
    )
    from tao_sdk.skills import SkillBank

    request = PreflightRequest(
        platform=platform or settings.get("TAO_PLATFORM"),
        paths=read_paths(paths),
        required_fields=read_lists("--require", fields),
        sample_limit=sample,
        skip_platform_access=skip_platform_access,
        container_image=image,
        smoke_image=gpu_smoke_image,
        pull_smoke_image=pull_smoke_image,
        gpu_archs=gpu_arch,
        gpu_count=gpus,
        target_gpu_count=target_gpu_count,
        target_gpu_memory_gb=read_gigabytes("--target-gpu-memory-gb", target_gpu_memory_gb),
        min_gpu_memory_gb=gpu_memory,
        effective_batch=read_batches(batches),
        docker_host=docker_host,
        model_credentials=credential,
        confirmed_mounts=confirm_mounts,
    )
    report = _run(session, request, SkillBank(bank))
    return exit_codes.OK if report.ok else exit_codes.PROBLEM


def _run(session: Session, request: PreflightRequest, bank: SkillBank) -> PreflightReport:
    from tao_sdk.preflight import run_preflight
    from tao_sdk.preflight.lines import check_line, remedy_lines, verdict

    out = session.out
    if out.json:
        report = run_preflight(request, bank)
        fields = {"platform": request.platform, **report.as_json(), "verdict": verdict(report)}
        out.document("preflight", fields)
        return report
    if out.on_terminal:
        return _for_a_person(session, request, bank)

    def tell(check: Check) -> None:
        out.line(check_line(check))
        out.flush()

    report = run_preflight(request, bank, tell)
    for line in (*remedy_lines(report), "", verdict(report)):
        out.line(line)
    return report


def _for_a_person(session: Session, request: PreflightRequest, bank: SkillBank) -> PreflightReport:
    """Findings scroll past above a line that shows that somebody is at work."""
    from tao_sdk.cli.consoles import console
    from tao_sdk.preflight import run_preflight
    from tao_sdk.preflight.lines import remedy_lines, verdict

    out, screen, began = session.out, console(), time.monotonic()
    labels = [*request.paths, *request.required_fields, *request.effective_batch]
    widest = max((len(f"fields:{label}") for label in labels), default=0)
    width = min(max(widest, len("kubernetes.node_runtime")), _LONGEST_NAME)
    with ExitStack() as stack:
        show: Callable[[str], None] = out.line
        if out.can_draw:
            from tao_sdk.cli.live_line import LiveLine

            def at_work(_: int) -> str:
                return f"looking at {request.platform}: {time.monotonic() - began:.0f} s"

            show = stack.enter_context(LiveLine(out, at_work, _SECONDS)).print_above

        def tell(check: Check) -> None:
            show(_drawn(screen, check, width))

        report = run_preflight(request, bank, tell)
    for line in remedy_lines(report):
        style = "" if line.startswith(" ") else "bold"
        screen.print(_fitted(line, screen.width), style=style, soft_wrap=True)
    screen.print()
    screen.print(verdict(report), style="bold green" if report.ok else "bold red")
    return report


def _fitted(line: str, width: int) -> str:
    """Prose between words; a command, which is indented further, as it is to be copied."""
    if line.startswith("    "):
        return line
    return textwrap.fill(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _drawn(screen: Console, check: Check, width: int) -> str:
    """One finding, fitted to the terminal: what goes on is indented below its beginning."""
    from rich.table import Table
    from rich.text import Text

    mark, style = _MARKS[check.status]
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(width=width, overflow="fold")
    grid.add_column(overflow="fold")
    dim = "dim" if check.status == "skipped" else ""
    grid.add_row(Text(mark, style), Text(check.name, dim or "bold"), Text(check.message, dim))
    with screen.capture() as captured:
        screen.print(grid)
    return captured.get().rstrip("\n")
