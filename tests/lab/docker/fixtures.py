"""Fixtures of tests that need an engine. Name them in a conftest by an import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.docker import Engine, shared_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine that all tests share: they leave it, and what others have there, alone."""
    with shared_engine() as engine:
        yield engine
