"""Pieces of log files, split into lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator


def lines_of(data: bytes, start: int, size: int, *, flush: bool) -> Iterator[tuple[bytes, int]]:
    """The lines of a piece that begins at `start` of a file of `size` bytes, each with its end.

    A last line that may still grow is left out, unless `flush` says that it will not.
    """
    position, rest = start, data
    while rest:
        line, newline, after = rest.partition(b"\n")
        if not newline and _goes_on(data, rest, position, size, flush=flush):
            return
        if not newline and position + len(rest) < size:
            line = whole_characters(rest)
        position += len(line) + len(newline)
        yield line, position
        rest = after


def _goes_on(data: bytes, rest: bytes, position: int, size: int, *, flush: bool) -> bool:
    """Whether the next read brings more of this line."""
    if position + len(rest) < size:  # what was read ends here, the file does not
        return len(rest) < len(data)  # unless a line is all that was read
    return not flush


def whole_characters(part: bytes) -> bytes:
    """A part of a line, less a character at its end that was cut in two."""
    for length in range(1, min(4, len(part))):
        if part[-length] >= 0xC0:
            needed = 2 if part[-length] < 0xE0 else 3 if part[-length] < 0xF0 else 4
            return part[:-length] if length < needed else part
        if part[-length] < 0x80:
            break
    return part


def rank_prefix(rank: int, nodes: int) -> str:
    """What begins a line of a job of several nodes."""
    return f"[rank {rank}] " if nodes > 1 else ""
