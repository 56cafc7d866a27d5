"""Options and collection rules of the whole suite."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The full counts of random suites run only when asked for (`make soak`)."""
    if os.environ.get("TAO_SOAK"):
        return
    skip = pytest.mark.skip(reason="full count: run by `make soak` (a sample runs here)")
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(skip)
