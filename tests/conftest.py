"""Options and collection rules of the whole suite."""

from __future__ import annotations

import os
import signal

import pytest

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
