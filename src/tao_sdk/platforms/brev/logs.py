"""A job's log in pieces; a cursor is the offset of the next byte."""

from __future__ import annotations

from collections.abc import Sequence

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
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
            lines = tuple(
                LogLine(line.decode("utf-8", "replace"), str(end))
                for line, end in lines_of(section.data, start, size, flush=flush)
            )
            position = lines[-1].cursor if lines else str(start)
            return LogChunk(lines, start + len(section.data) < size, position)
    return LogChunk((), more=False, cursor="0")
