"""A preflight in plain lines: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tao_sdk.preflight.checks import FAILED, WARNING, Check
from tao_sdk.preflight.engine import PreflightReport


def check_line(check: Check) -> str:
    """What was found, in one line."""
    return f"{check.status:<7}  {check.name}: {check.message}"


def remedy_lines(report: PreflightReport) -> Iterator[str]:
    """What to do about everything that failed, and then about the rest."""
    for status in (FAILED, WARNING):
        for check in report.checks:
            if check.status == status and check.remedy:
                yield ""
                yield f"{check.name}:"
                yield from (f"  {line}" for line in check.remedy.splitlines())


def verdict(report: PreflightReport) -> str:
    """Whether the launch may go on, and why not."""
    counted = Counter(check.status for check in report.checks)
    warnings = counted[WARNING]
    also = f", {warnings} warning{'s' * (warnings != 1)}" if warnings else ""
    total = len(report.checks)
    if report.ok:
        return f"Preflight passed: {total} check{'s' * (total != 1)}{also}."
    names = ", ".join(check.name for check in report.failures)
    return f"Preflight failed: {names} ({counted[FAILED]} of {total} checks{also})."
