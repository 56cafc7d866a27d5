"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(str, Enum):
    """How much it matters."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing has to be done."""
    PROBLEM = "problem"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    text: str
    level: Level = Level.OK
    todo: str = ""
    """What to do about it."""


def note(name: str, text: str, todo: str = "") -> Finding:
    return Finding(name, text, Level.NOTE, todo)


def problem(name: str, text: str, todo: str) -> Finding:
    return Finding(name, text, Level.PROBLEM, todo)
