"""Programs for the login host."""

from __future__ import annotations

from pathlib import Path

from tao_sdk.platforms.remote.framing import Call, Programs, Section, by_program, table

__all__ = ["Call", "Section", "by_program", "call", "table"]

call = Programs(Path(__file__).parent / "programs").call
"""Programs of ours with their variables, one after the other in one round trip."""
