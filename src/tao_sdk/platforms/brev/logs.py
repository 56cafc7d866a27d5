"""A job's log in pieces; a cursor is the offset of the next byte."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.common.log_files import offset_of_last
from tao_sdk.platforms.common.log_lines import lines_of
from tao_sdk.platforms.remote.framing import Section


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
            start = 0 if tail is None else offset_of_last(path, tail)
        log.seek(start)
        return _chunk(log.read(limit), start, size, flush=flush)


def _chunk(data: bytes, start: int, size: int, *, flush: bool) -> LogChunk:
    lines, position = [], start
    for line, end in lines_of(data, start, size, flush=flush):
        lines.append(LogLine(line.decode("utf-8", "replace"), str(end)))
        position = end
    return LogChunk(tuple(lines), start + len(data) < size, str(position))
