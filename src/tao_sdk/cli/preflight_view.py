"""A preflight as `preflight` and `launch` show it: findings as they come, what to do, verdict."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tao_sdk.cli.output import Output
from tao_sdk.preflight.engine import run_preflight
from tao_sdk.preflight.lines import check_line, remedy_lines, verdict

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


def shown_preflight(
    out: Output, request: PreflightRequest, bank: SkillBank, *, is_result: bool
) -> PreflightReport:
    """Run a preflight and show its findings as they come.

    They go to stdout if they are the result of the command, otherwise to stderr.
    """
    write = out.line if is_result else out.say
    stream = sys.stdout if is_result else sys.stderr
    if stream.isatty():
        return _for_a_person(out, request, bank, write, is_result=is_result)

    def tell(check: Check) -> None:
        write(check_line(check))
        stream.flush()

    report = run_preflight(request, bank, tell)
    for line in (*remedy_lines(report), "", verdict(report)):
        write(line)
    return report


def _for_a_person(
    out: Output,
    request: PreflightRequest,
    bank: SkillBank,
    write: Callable[..., None],
    *,
    is_result: bool,
) -> PreflightReport:
    """Findings scroll past above a line that shows progress."""
    from tao_sdk.cli.consoles import console

    screen, began = console(stderr=not is_result), time.monotonic()
    labels = [*request.paths, *request.required_fields, *request.effective_batch]
    widest = max((len(f"fields:{label}") for label in labels), default=0)
    width = min(max(widest, len("kubernetes.node_runtime")), _LONGEST_NAME)
    with ExitStack() as stack:
        show = write
        if out.can_draw and (is_result or not out.quiet):
            from tao_sdk.cli.live_line import LiveLine

            def at_work(_: int) -> str:
                return f"looking at {request.platform}: {time.monotonic() - began:.0f} s"

            show = stack.enter_context(LiveLine(out, at_work, _SECONDS)).print_above

        def tell(check: Check) -> None:
            show(_drawn(screen, check, width), exact=True)

        report = run_preflight(request, bank, tell)
    for line in remedy_lines(report):
        style = "" if line.startswith(" ") else "bold"
        write(_styled(screen, _fitted(line, screen.width), style), exact=True)
    write("")
    style = "bold green" if report.ok else "bold red"
    write(_styled(screen, _fitted(verdict(report), screen.width), style), exact=True)
    return report


def _styled(screen: Console, text: str, style: str) -> str:
    from tao_sdk.cli.consoles import plain

    with screen.capture() as captured:
        screen.print(plain(text), style=style, soft_wrap=True)
    return captured.get().removesuffix("\n")


def _fitted(line: str, width: int) -> str:
    """Prose between words; a command, which is indented further, as it is to be copied."""
    if line.startswith("    "):
        return line
    return textwrap.fill(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _drawn(screen: Console, check: Check, width: int) -> str:
    """One finding, fitted to the terminal; continued lines are indented."""
    from rich.table import Table

    from tao_sdk.cli.consoles import plain

    mark, style = _MARKS[check.status]
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(width=width, overflow="fold")
    grid.add_column(overflow="fold")
    dim = "dim" if check.status == "skipped" else ""
    grid.add_row(plain(mark, style), plain(check.name, dim or "bold"), plain(check.message, dim))
    with screen.capture() as captured:
        screen.print(grid)
    return captured.get().rstrip("\n")
