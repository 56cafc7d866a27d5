"""A real engine for those platforms that need one."""

from __future__ import annotations

from lab.docker.fixtures import engine

__all__ = ["engine"]
