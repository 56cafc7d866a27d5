"""Programs for a machine that is reached through a shell, and their answers. Pure.

A program is portable shell (`programs/`). Quoted variables are assigned before it; a table or an
archive may follow it on its input. It answers in sections. Each begins with a line that contains a
random word of this call, so that output of login scripts can be left out; the last section marks
the answer as complete.
"""

from __future__ import annotations

import functools
import secrets
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tao_sdk.errors import PlatformError
from tao_sdk.untrusted import number

_SHARED = Path(__file__).parent / "programs"
END = "end-of-answer"
"""The name of the last section; without it the answer is incomplete."""
_NEXT = "next-program"
ProgramCall = tuple[str, Mapping[str, str]]
"""A program by name, and its variables."""


class Section(NamedTuple):
    """A part of an answer: its name, the words after it, and its text."""

    name: str
    words: str
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    def place(self) -> tuple[str, int, int]:
        """Of a piece of a file: the words before it, where it begins, the size of the file."""
        *names, begin, size = ["", "", *self.words.split()]
        start, end = number(begin), number(size)
        if start is None or end is None:
            raise PlatformError(f"an answer makes no sense: {self.name} {self.words[:200]!r}")
        return " ".join(names).strip(), start, end


class Call(NamedTuple):
    """A program, ready to be sent."""

    nonce: str
    source: bytes

    @property
    def command(self) -> str:
        """The command for the login shell, whichever it is: read the program, then run it.

        `head` takes exactly so many bytes; the rest of the input is the program's own.
        """
        return f"exec /bin/sh -c 'eval \"$(head -c {len(self.source)})\"'"

    @property
    def mark(self) -> bytes:
        """What every section begins with."""
        return f"\n@{self.nonce} ".encode()

    def sections(self, answer: bytes) -> list[Section] | None:
        """The answer in parts; None when it is incomplete."""
        parts = (b"\n" + answer).split(self.mark)[1:]
        found = []
        for part in parts:
            head, _, data = part.partition(b"\n")
            name, _, words = head.decode("utf-8", "replace").partition(" ")
            found.append(Section(name, words, data))
        if not found or found[0].name != "begin" or found[-1].name != END:
            return None
        return found[1:-1]


class Programs:
    """The programs in a platform's folder, and those that platforms share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def call(self, *calls: ProgramCall) -> Call:
        """Programs with their variables, one after the other in one round trip."""
        nonce = secrets.token_hex(8)
        # Each in its own shell, so that the others run even if one stops early.
        runs = f"mark {_NEXT}\n".join(
            f"(\n{assigned(variables)}{self.read(program)}\n)\n" for program, variables in calls
        )
        source = f"{assigned({'nonce': nonce})}{self.read('prelude')}{runs}mark {END}\n"
        return Call(nonce, source.encode())

    def read(self, name: str) -> str:
        """The text of a program."""
        own = self._folder / f"{name}.sh"
        return _read(own if own.exists() else _SHARED / f"{name}.sh")


def by_program(sections: Iterable[Section]) -> list[list[Section]]:
    """The sections of each of several programs that ran in one call."""
    answers: list[list[Section]] = [[]]
    for section in sections:
        if section.name == _NEXT:
            answers.append([])
        else:
            answers[-1].append(section)
    return answers


def assigned(variables: Mapping[str, str]) -> str:
    """Shell assignments, quoted."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


def table(rows: Iterable[Iterable[str]]) -> bytes:
    """Rows for a program's input; no value may hold white space."""
    return "".join(" ".join(row) + "\n" for row in rows).encode()


@functools.cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
