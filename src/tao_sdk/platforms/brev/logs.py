"""A job's log in pieces; a cursor is the offset of the next byte."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.remote.log_lines import lines_of

_BLOCK = 64 * 1024


def parse_cursor(cursor: str) -> int | None:
    """None at the start."""
    if cursor and not cursor.isdigit():
        raise ValidationError(f"{cursor!r} is not a cursor of a log on Brev")
    return int(cursor) if cursor else None


def chunk_of(sections: Sequence[Section], *, flush: bool) -> LogChunk:
    """The answer of the program `logs`."""
    for section in sections:
        if section.name == "log":
            start, size = map(int, section.words.split())
            return _chunk(section.data, start, size, flush=flush)
    return LogChunk((), more=False, cursor="0")


def read_file(
    path: Path, start: int | None, tail: int | None, limit: int, *, flush: bool
) -> LogChunk:
    """The same from a log that is kept here."""
    with path.open("rb") as log:
        size = os.fstat(log.fileno()).st_size
        if start is None:
            start = 0 if tail is None else _start_of_tail(path, size, tail)
        log.seek(start)
        return _chunk(log.read(limit), start, size, flush=flush)


def _chunk(data: bytes, start: int, size: int, *, flush: bool) -> LogChunk:
    lines, position = [], start
    for line, end in lines_of(data, start, size, flush=flush):
        lines.append(LogLine(line.decode("utf-8", "replace"), str(end)))
        position = end
    return LogChunk(tuple(lines), start + len(data) < size, str(position))


def _start_of_tail(path: Path, size: int, lines: int) -> int:
    """Where the last `lines` lines begin; read from the end, some at a time."""
    if lines <= 0:
        return size
    wanted, position = lines, size
    with path.open("rb") as log:
        while position > 0:
            first = max(0, position - _BLOCK)
            log.seek(first)
            block = log.read(position - first)
            # The newline at the very end ends the last line, and begins none.
            at = len(block) - (1 if position == size and block.endswith(b"\n") else 0)
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                wanted -= 1
                if wanted == 0:
                    return first + at + 1
            position = first
    return 0
