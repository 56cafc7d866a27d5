"""Fixtures of the tests of the whole command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from entrypoints import Container, container
from stores import Bucket


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Container]:
    """A container with nothing in it."""
    with container(tmp_path / "box") as made:
        yield made


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """An empty bucket; of rclone's server unless a test asks for both."""
    return Bucket(getattr(request, "param", "rclone"))
