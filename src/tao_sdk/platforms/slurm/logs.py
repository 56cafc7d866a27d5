"""Logs of all attempts as one, read in pieces by offset."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.common.log_lines import lines_of
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.untrusted import number

_STREAM = re.compile(r"[0-9_]+(?:\.batch)?\.(?:out|err)")
_LABEL = re.compile(rb"^ *(\d+): ", re.MULTILINE)


def parse_cursor(cursor: str) -> dict[str, int]:
    """Offsets by stream: `<Slurm's id>.out`, or `.batch.out` before there are tasks."""
    offsets: dict[str, int] = {}
    for part in filter(None, cursor.split(",")):
        name, _, text = part.partition("=")
        offset = number(text)
        if not _STREAM.fullmatch(name) or offset is None:
            raise ValidationError(f"{cursor!r} is not a cursor of a SLURM log")
        offsets[name] = offset
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
        name, start, size = section.place()
        offsets.setdefault(name, start)
        for line, end in lines_of(section.data, start, size, flush=flush):
            offsets[name] = end
            lines.append(LogLine(_text(line, labelled=labelled), format_cursor(offsets)))
        more = more or start + len(section.data) < size
    return LogChunk(tuple(lines), more, format_cursor(offsets) or "")


def relabel(text: str, *, labelled: bool) -> str:
    """The ranks of a log as explanations name them."""
    if not labelled:
        return text
    return _LABEL.sub(rb"[rank \1] ", text.encode()).decode("utf-8", "replace")


def _text(line: bytes, *, labelled: bool) -> str:
    if labelled:
        line = _LABEL.sub(rb"[rank \1] ", line, count=1)
    return line.decode("utf-8", "replace")
