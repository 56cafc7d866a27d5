"""Options and collection rules of the whole suite."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest

import expected_skips
from lab import permissions

AnyReport = TypeVar("AnyReport", pytest.TestReport, pytest.CollectReport)

# What these do to a process that has not asked otherwise. A parent that ignores them (nohup, a
# shell's background job) hands that on to every process that a test starts.
_SIGNALS = {
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


def pytest_configure() -> None:
    """Undo ignored signals, in the main process and in every worker."""
    for number, action in _SIGNALS.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, action)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The full counts of random suites run only when asked for (`make soak`)."""
    if os.environ.get("TAO_SOAK"):
        return
    skip = pytest.mark.skip(reason="full count: run by `make soak` (a sample runs here)")
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _judged((yield))


def _judged(report: AnyReport) -> AnyReport:
    """A skip for a reason that is not expected is a failure."""
    if report.skipped and not hasattr(report, "wasxfail"):
        refused = expected_skips.refusal(report.longrepr)
        if refused is not None:
            report.outcome, report.longrepr = "failed", refused
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where labs are demanded, what was skipped nevertheless."""
    reports = terminalreporter.stats.get("skipped", [])
    if not reports or not os.environ.get("TAO_LAB_REQUIRE"):
        return
    reasons = Counter(expected_skips.reason_of(report.longrepr[2]) for report in reports)
    terminalreporter.section("expected skips")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} x {reason}: {expected_skips.why_expected(reason)}")


@pytest.fixture
def permissions_apply() -> Iterator[None]:
    """A test of permissions means the same for root."""
    with permissions.permissions_apply():
        yield
