"""Reading log files on this machine: by offset, whole lines, bounded memory."""

from __future__ import annotations

from pathlib import Path

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.common.log_lines import lines_of
from tao_sdk.untrusted import number, open_regular

_BLOCK = 64 * 1024
# The search for the beginning of a line ends here: a sparse file of any size has no line.
_LONGEST_LINE = 16 << 20


def read_chunk(path: Path, *, cursor: str, tail: int | None, limit: int, flush: bool) -> LogChunk:
    """The next lines of a file, which may not exist yet; a cursor is an offset."""
    begin = number(cursor or "0")
    if begin is None:
        raise ValidationError(f"cursor {cursor!r} does not belong to this log")
    if tail is not None and not cursor:
        begin = offset_of_last(path, tail)
    data = _read(path, begin, limit)
    full = len(data) == limit  # then the file may go on
    lines = tuple(
        LogLine(line.decode("utf-8", "replace"), str(end))
        for line, end in lines_of(data, begin, begin + len(data) + full, flush=flush)
    )
    end = int(lines[-1].cursor) if lines else begin
    return LogChunk(lines, full and end > begin, str(end), start=str(begin))


def offset_of_last(path: Path, lines: int) -> int:
    """Where the last `lines` lines begin, read backwards."""
    handle = open_regular(path)
    if handle is None:
        return 0
    with handle:
        end = handle.seek(0, 2)
        if lines <= 0:
            return end
        position, wanted, newest = end, lines, end
        # A newline at the very end finishes the last line; it does not begin another one.
        if position:
            handle.seek(position - 1)
            wanted += handle.read(1) == b"\n"
        while position > max(0, newest - _LONGEST_LINE):
            size = min(_BLOCK, position)
            position -= size
            handle.seek(position)
            block = handle.read(size)
            found = block.count(b"\n")
            if found >= wanted:
                return position + _nth_newline_from_end(block, wanted) + 1
            wanted -= found
            newest = position if found else newest
        return position


def _nth_newline_from_end(block: bytes, n: int) -> int:
    index = len(block)
    for _ in range(n):
        index = block.rindex(b"\n", 0, index)
    return index


def _read(path: Path, offset: int, size: int) -> bytes:
    handle = open_regular(path)
    if handle is None:
        return b""
    with handle:
        handle.seek(offset)
        return handle.read(size)
