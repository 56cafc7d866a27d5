"""What a check of a bank found."""

from __future__ import annotations

from typing import Any, NamedTuple

from tao_sdk.skills.shapes import misshapen

__all__ = ["NOTE", "PROBLEM", "Finding", "note", "problem", "shape_problems"]

PROBLEM = "problem"
"""A job would fail, or do something else than is written."""
NOTE = "note"
"""Worth knowing: the SDK copes with it, other readers may not."""


class Finding(NamedTuple):
    """One flaw: where it is, and what is wrong."""

    level: str
    file: str
    """Relative to the root of the bank."""
    key: str
    """Path of the key in the file; "" for the file as a whole."""
    message: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        return f"{where}: {self.message}"


def shape_problems(content: Any, shape: Any, file: str) -> list[Finding]:
    """What is no list, mapping or text where one must be."""
    return [problem(file, key, complaint) for key, complaint in misshapen(content, shape)]


def problem(file: str, key: str, message: str) -> Finding:
    return Finding(PROBLEM, file, key, message)


def note(file: str, key: str, message: str) -> Finding:
    return Finding(NOTE, file, key, message)
