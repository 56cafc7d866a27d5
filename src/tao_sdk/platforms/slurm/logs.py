"""Logs of all attempts as one, read in pieces by offset."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.slurm.remote import Section

_STREAM = re.compile(r"[0-9_]+(?:\.batch)?\.(?:out|err)")
_LABEL = re.compile(rb"^ *(\d+): ", re.MULTILINE)


def parse_cursor(cursor: str) -> dict[str, int]:
    """Offsets by stream: `<Slurm's id>.out`, or `.batch.out` before there are tasks."""
    offsets: dict[str, int] = {}
    for part in filter(None, cursor.split(",")):
        name, _, offset = part.partition("=")
        if not _STREAM.fullmatch(name) or not offset.isdigit():
            raise ValidationError(f"{cursor!r} is not a cursor of a SLURM log")
        offsets[name] = int(offset)
    return offsets


def format_cursor(offsets: Mapping[str, int]) -> str:
    return ",".join(f"{name}={offset}" for name, offset in offsets.items())


def chunk_of(
    sections: list[Section],
    known: Mapping[str, int],
    *,
    labelled: bool,
    flush: bool,
) -> LogChunk:
    """Lines of one read, files in the order of the attempts, output before errors."""
    offsets = dict(known)
    lines: list[LogLine] = []
    more = False
    for section in sections:
        if section.name != "stream":
            continue
        name, start, size = section.words.split()
        position = int(start)
        offsets.setdefault(name, position)
        rest = section.data
        while rest:
            line, newline, after = rest.partition(b"\n")
            if not newline and _goes_on(section.data, rest, position, int(size), flush=flush):
                break
            if not newline and position + len(rest) < int(size):
                line = _whole_characters(rest)
            position += len(line) + len(newline)
            offsets[name] = position
            lines.append(LogLine(_text(line, labelled=labelled), format_cursor(offsets)))
            rest = after
        offsets[name] = position
        more = more or int(start) + len(section.data) < int(size)
    return LogChunk(tuple(lines), more, format_cursor(offsets) or "")


def _goes_on(data: bytes, rest: bytes, position: int, size: int, *, flush: bool) -> bool:
    """Does more of this line come with the next read?"""
    if position + len(rest) < size:  # what was read ends here, the file does not
        return len(rest) < len(data)  # unless a line is all that was read
    return not flush


def _whole_characters(part: bytes) -> bytes:
    """A part of a line, less a character at its end that was cut in two."""
    for length in range(1, min(4, len(part))):
        if part[-length] >= 0xC0:
            needed = 2 if part[-length] < 0xE0 else 3 if part[-length] < 0xF0 else 4
            return part[:-length] if length < needed else part
        if part[-length] < 0x80:
            break
    return part


def relabel(text: str, *, labelled: bool) -> str:
    """The ranks of a log as explanations name them."""
    if not labelled:
        return text
    return _LABEL.sub(rb"[rank \1] ", text.encode()).decode("utf-8", "replace")


def _text(line: bytes, *, labelled: bool) -> str:
    if labelled:
        line = _LABEL.sub(rb"[rank \1] ", line, count=1)
    return line.decode("utf-8", "replace")
