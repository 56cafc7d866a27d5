"""A job's log in chunks; a cursor is the offset of the next byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.backend import JobRef, LogChunk, LogLine
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.brev.status import End
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.common.log_files import read_chunk
from tao_sdk.platforms.common.log_lines import lines_of
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.untrusted import number


def log_source(
    job: JobRef,
    kept: OutcomeFiles[End],
    machine: Callable[[str], Machine],
    why_silent: Callable[[str, str], str],
) -> PolledLog:
    """The log on the instance, or the kept one once that exists."""

    def read(*, cursor: str, tail: int | None, limit: int, flush: bool) -> LogChunk:
        if kept.outcome(job.job_id) is not None:
            path = kept.log(job.job_id)
            return read_chunk(path, cursor=cursor, tail=tail, limit=limit, flush=flush)
        start = parse_cursor(cursor)
        name = job.native["instance"]
        if why := why_silent(name, "its log was not brought here"):
            raise BackendUnreachableError(why)
        variables = {
            "job_id": job.job_id,
            "from": str(start or 0),
            "tail": "" if tail is None or start is not None else str(tail),
            "limit": str(limit),
        }
        return chunk_of(machine(name).run("logs", variables), flush=flush)

    return PolledLog(read)


def parse_cursor(cursor: str) -> int | None:
    """None at the start."""
    offset = number(cursor) if cursor else None
    if cursor and offset is None:
        raise ValidationError(f"{cursor!r} is not a cursor of a log on Brev")
    return offset


def chunk_of(sections: Sequence[Section], *, flush: bool) -> LogChunk:
    """The answer of the program `logs`."""
    for section in sections:
        if section.name == "log":
            _, start, size = section.place()
            lines = tuple(
                LogLine(line.decode("utf-8", "replace"), str(end))
                for line, end in lines_of(section.data, start, size, flush=flush)
            )
            position = lines[-1].cursor if lines else str(start)
            return LogChunk(lines, start + len(section.data) < size, position)
    return LogChunk((), more=False, cursor="0")
