"""Reading log files on this machine: by offset, whole lines, bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.common.log_lines import lines_of, rank_prefix

_BLOCK = 64 * 1024


def read_chunk(
    files: Sequence[Path], *, cursor: str, tail: int | None, limit: int, flush: bool
) -> LogChunk:
    """The next lines of one file per rank; several ranks are told apart by a prefix."""
    offsets = parse_cursor(cursor, len(files)) if cursor else _start(files, tail)
    share = max(_BLOCK, limit // len(files))
    lines: list[LogLine] = []
    more = False
    for rank, path in enumerate(files):
        prefix, begin = rank_prefix(rank, len(files)), offsets[rank]
        data = _read(path, begin, share)
        full = len(data) == share  # then the file may go on
        for line, end in lines_of(data, begin, begin + len(data) + full, flush=flush):
            offsets[rank] = end
            lines.append(LogLine(prefix + line.decode("utf-8", "replace"), format_cursor(offsets)))
        more = more or (full and offsets[rank] > begin)
    return LogChunk(tuple(lines), more, format_cursor(offsets))


def parse_cursor(cursor: str, files: int) -> list[int]:
    parts = cursor.split(",")
    if len(parts) != files or not all(part.isdigit() for part in parts):
        raise ValidationError(f"cursor {cursor!r} does not belong to this log")
    return [int(part) for part in parts]


def format_cursor(offsets: Sequence[int]) -> str:
    return ",".join(map(str, offsets))


def _start(files: Sequence[Path], tail: int | None) -> list[int]:
    if tail is None:
        return [0] * len(files)
    if tail < 0:
        raise ValidationError(f"tail: {tail} is less than 0")
    # `tail` counts the lines of the whole log, so the ranks share it.
    shares = [tail // len(files) + (rank < tail % len(files)) for rank in range(len(files))]
    return [offset_of_last(path, share) for path, share in zip(files, shares, strict=True)]


def offset_of_last(path: Path, lines: int) -> int:
    """Where the last `lines` lines begin, read backwards."""
    try:
        handle = path.open("rb")
    except FileNotFoundError:
        return 0
    with handle:
        end = handle.seek(0, 2)
        if lines <= 0:
            return end
        position, wanted = end, lines
        # A newline at the very end finishes the last line; it does not begin another one.
        if position:
            handle.seek(position - 1)
            wanted += handle.read(1) == b"\n"
        while position > 0:
            size = min(_BLOCK, position)
            position -= size
            handle.seek(position)
            block = handle.read(size)
            found = block.count(b"\n")
            if found >= wanted:
                return position + _nth_newline_from_end(block, wanted) + 1
            wanted -= found
        return 0


def _nth_newline_from_end(block: bytes, n: int) -> int:
    index = len(block)
    for _ in range(n):
        index = block.rindex(b"\n", 0, index)
    return index


def _read(path: Path, offset: int, size: int) -> bytes:
    try:
        with path.open("rb") as handle:
            handle.seek(offset)
            return handle.read(size)
    except FileNotFoundError:
        return b""
