"""Where the catalogue finds something in a log, and how much each find counts."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

from tao_sdk.failures.catalogue import BY_ID, CATALOGUE
from tao_sdk.failures.cause import Cause, Standing
from tao_sdk.failures.log_lines import Level, Line
from tao_sdk.failures.progress import RECOVERED_AFTER, progress_after
from tao_sdk.failures.tracebacks import TRIES_AGAIN, Effect, Traceback, find_tracebacks

# A process that gave up cannot recover by itself; but a requeued job writes into the same log.
_REQUEUED_AFTER = 50
# How far from the end a line that stands alone may be and still be about the end.
_NEAR_THE_END = 300
_TRACEBACKS_READ = 200
_MATCHES_KEPT = 64
_MAKES_LIGHT_OF_IT = re.compile(
    r"\b(?:skipped|ignor(?:ing|ed)|continuing|recovered|as a fallback)\b", re.IGNORECASE
)
_NATIVE_FRAME = re.compile(r"^frame #\d+: ")
# What launchers raise about their children, and interpreters about signals, explains nothing.
_EMPTY_EXCEPTIONS = frozenset(
    {
        "ChildFailedError",
        "CalledProcessError",
        "ProcessRaisedException",
        "ProcessExitedException",
        "SignalException",
        "KeyboardInterrupt",
        "SystemExit",
    }
)


@dataclass(frozen=True)
class Hit:
    """A cause that the log speaks for."""

    cause: Cause
    line: int
    last_line: int
    values: Mapping[str, str | None]
    standing: Standing
    replica: int | None = None
    process: int | None = None
    traceback: Traceback | None = None

    @property
    def rank(self) -> int | None:
        return self.process if self.process is not None else self.replica


class LogView:
    """A log, prepared for being searched."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.tracebacks = find_tracebacks(lines)
        self._owner: list[Traceback | None] = [None] * len(lines)
        self._quoted: set[int] = set()
        for traceback in self.tracebacks:
            self._quoted.update(traceback.quoted)
            for index in (*traceback.quoted, *traceback.said):
                self._owner[index] = traceback
        self._alive = _alive(lines, self._owner)

    def living_lines(self) -> list[Line]:
        """The lines that no progress followed."""
        return [line for line, alive in zip(self.lines, self._alive, strict=True) if alive]

    def hits(self, exit_code: int | None) -> list[Hit]:
        """Every find that may have to do with the end of the job."""
        found = list(self._pattern_hits(exit_code))
        consequences = {
            hit.traceback.chain
            for hit in found
            if hit.traceback is not None and hit.standing < Standing.PRIMARY
        }
        return [*found, *self._exception_hits(consequences)]

    def _pattern_hits(self, exit_code: int | None) -> Iterator[Hit]:
        readable = [
            i
            for i, line in enumerate(self.lines)
            if self._alive[i] and i not in self._quoted and not _NATIVE_FRAME.match(line.text)
        ]
        telling = self._about_the_end(readable)
        everything = _Searchable(self.lines, readable)
        with_warnings = _Searchable(self.lines, telling)
        serious = _Searchable(
            self.lines, [i for i in telling if self.lines[i].level is not Level.QUIET]
        )
        for cause in CATALOGUE:
            if cause.only_with and exit_code is not None and exit_code not in cause.only_with:
                continue
            text = with_warnings if cause.even_as_warning else serious
            if cause.standing is Standing.DECISIVE:
                text = everything
            for pattern in cause.log_patterns:
                for match, first, last in text.search(pattern):
                    hit = self._judge(cause, match, first, last)
                    if hit is not None:
                        yield hit

    def _about_the_end(self, readable: Sequence[int]) -> list[int]:
        """The last lines of every replica, and the messages of the last tracebacks."""
        by_replica: dict[int | None, list[int]] = {}
        for index in readable:
            by_replica.setdefault(self.lines[index].replica, []).append(index)
        near = {index for mine in by_replica.values() for index in mine[-_NEAR_THE_END:]}
        for traceback in self.tracebacks[-_TRACEBACKS_READ:]:
            near.update(traceback.said)
        return [index for index in readable if index in near]

    def _judge(self, cause: Cause, match: re.Match[str], first: int, last: int) -> Hit | None:
        line, owner = self.lines[first], self._owner[first]
        standing = cause.standing
        if standing is not Standing.DECISIVE:
            if self._survived(cause, first):
                return None
            if owner is not None and owner.effect is Effect.SIDE:
                standing = Standing.COLLATERAL
        return Hit(
            cause=cause,
            line=first,
            last_line=last,
            values=match.groupdict(),
            standing=standing,
            replica=line.replica,
            process=line.process,
            traceback=owner,
        )

    def _survived(self, cause: Cause, index: int) -> bool:
        """Does the log say that the program went on all the same?"""
        owner = self._owner[index]
        if owner is not None:
            return owner.effect is Effect.HARMLESS
        return not cause.even_as_warning and self._goes_on(index)

    def _goes_on(self, index: int) -> bool:
        here = self.lines[index]
        if TRIES_AGAIN.search(here.text) or _MAKES_LIGHT_OF_IT.search(here.text):
            return True
        following = self.lines[index + 1 : index + 2]
        return any(TRIES_AGAIN.search(line.text) for line in following if line.rank == here.rank)

    def _exception_hits(self, consequences: Set[int]) -> Iterator[Hit]:
        """Every uncaught exception is a cause, if only a general one.

        `consequences` are the chains in which something known to be collateral was recognised.
        """
        for traceback in self.tracebacks:
            line = self.lines[traceback.exception_at]
            if traceback.effect is Effect.HARMLESS or not self._alive[traceback.exception_at]:
                continue
            if traceback.exception in _EMPTY_EXCEPTIONS or not traceback.exception:
                continue
            own = traceback.effect is Effect.FATAL and traceback.chain not in consequences
            yield Hit(
                cause=BY_ID["python-exception"],
                line=traceback.exception_at,
                last_line=traceback.exception_at,
                values={
                    "exception": traceback.exception,
                    "message": traceback.message,
                    "frame": traceback.frame,
                },
                standing=Standing.PRIMARY if own else Standing.COLLATERAL,
                replica=line.replica,
                process=line.process,
                traceback=traceback,
            )


class _Searchable:
    """Some lines of a log as one text, so that a pattern runs over them once."""

    def __init__(self, lines: Sequence[Line], indexes: Sequence[int]) -> None:
        self._indexes = indexes
        texts = [lines[i].text for i in indexes]
        self._text = "\n".join(texts)
        self._starts = list(accumulate((len(text) + 1 for text in texts), initial=0))

    def search(self, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], int, int]]:
        """The last matches, with the lines they begin and end in."""
        for match in deque(pattern.finditer(self._text), maxlen=_MATCHES_KEPT):
            if self._indexes:
                yield match, self._line_at(match.start()), self._line_at(match.end())

    def _line_at(self, position: int) -> int:
        place = bisect_right(self._starts, position) - 1
        return self._indexes[min(place, len(self._indexes) - 1)]


def _alive(lines: Sequence[Line], owners: Sequence[Traceback | None]) -> list[bool]:
    """For every line: was it not followed by progress, in the same replica?"""
    alive = [True] * len(lines)
    by_replica: dict[int | None, list[int]] = {}
    for index, line in enumerate(lines):
        by_replica.setdefault(line.replica, []).append(index)
    for mine in by_replica.values():
        for index, progress in zip(mine, progress_after([lines[i] for i in mine]), strict=True):
            owner = owners[index]
            gave_up = owner is not None and owner.uncaught
            alive[index] = progress < (_REQUEUED_AFTER if gave_up else RECOVERED_AFTER)
    return alive
