"""From the raw end of a log to lines one can judge: cleaned, with rank and level.

Programs, launchers and platforms put their prefixes before the message: ranks, times, levels,
names of loggers. They are taken off here, so that a pattern can say "at the start of the line".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

LONGEST_TAIL = 256 * 1024
LONGEST_LINE = 2000
MOST_LINES = 20_000
_MOST_PREFIXES = 8
# Programs quote with these where the language of the system has them.
_PLAIN_QUOTES = {0x2018: "'", 0x2019: "'"}


class Level(Enum):
    """How loud a line says it is."""

    QUIET = "debug, information, warning"
    PLAIN = "says nothing about itself"
    LOUD = "error"


@dataclass(frozen=True)
class Line:
    """One line of the log."""

    text: str
    """The message, without prefixes; its indentation is kept."""
    shown: str
    """As a reader should see it: only colours are gone."""
    level: Level = Level.PLAIN
    replica: int | None = None
    """The rank our platforms put before a line (`[rank 3] `): a node, pod or container."""
    process: int | None = None
    """The rank PyTorch or MPI puts before a line (`[rank3]: `): one process."""

    @property
    def rank(self) -> int | None:
        return self.process if self.process is not None else self.replica


_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_PREFIX = re.compile(
    r"""
    \[rank\ (?P<replica>\d{1,6})\]\ ?
    | \[(?:rank|default)(?P<torch>\d{1,6})\]:\ ?
    | \[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err)>:\ ?
    | (?P<bracket>\[)?\d{2,4}[-/]\d\d[-/]\d\d(?:\d\d)?[T\ _-][\d:.,]{5,18}(?:Z|[+-]\d\d:?\d\d)?
      (?(bracket)\]|[,:]?)\ ?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?\ (?=\S)
    | \[?(?P<glog>[DIWEF])\d{0,4}\ (?:[\d:.]{8,18}\ +)?(?:\d+\ )?[\w./-]{1,120}:\d{1,6}\]\ ?
    | [\[(<]?\ ?(?P<level>DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)
      (?::\d[\d@.]{0,20})?[\])>]?(?:(?=[\s:|-])|$)[\s:|-]{0,8}
    | \[(?!TRT\]|E\]|W\]|I\])(?P<tag>[^\[\]\n]{1,80})\](?::\ ?|\ -\ |\ (?=\S)|(?=\[))
    | (?P<logger>[\w.:<>-]{1,80})\ (?=[-|]\ \S)
    | [-|]\ (?=\S)
    """,
    re.VERBOSE,
)
_AFTER_LEVEL = re.compile(r"[\w.]{1,60}:(?=\S)")
_LEVEL_WORD = re.compile(r"\b(DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b")
_QUIET_WORDS = frozenset({"DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "D", "I", "W"})
_QUIET_LINE = re.compile(
    r"\bNCCL (?:INFO|TRACE|WARN)\b"
    r"|^(?:\S{1,200}:\d+: )?\w{0,40}Warning: "
    r"|^[Ww]arning[: ]"
    r"|\bis deprecated\b"
    r"|\[TRT\] \[[VIW]\]"
)
_LOUD_LINE = re.compile(
    r"^(?:[\w./-]{1,60}: ){0,2}(?:fatal|error|FATAL|ERROR|Error|Fatal)(?: error)?[:!] "
    r"|\[TRT\] \[E\]"
)


def read_lines(tail: str) -> list[Line]:
    """The lines of the last 256 KiB, without blank ones."""
    if len(tail) > LONGEST_TAIL:
        # The first line is most likely torn.
        tail = tail[-LONGEST_TAIL:].partition("\n")[2] or tail[-LONGEST_TAIL:]
    # splitlines() also parts what a progress bar overwrote with carriage returns.
    lines = [line for line in tail.splitlines() if line and not line.isspace()]
    return [_read(line) for line in lines[-MOST_LINES:]]


def _read(raw: str) -> Line:
    if len(raw) > LONGEST_LINE:
        half = LONGEST_LINE // 2
        raw = f"{raw[:half]} … {raw[-half:]}"
    shown = (_COLOUR.sub("", raw) if "\x1b" in raw else raw).rstrip()
    replica = process = None
    level = Level.PLAIN
    position = 0
    for _ in range(_MOST_PREFIXES):
        match = _PREFIX.match(shown, position)
        if match is None:
            break
        position = match.end()
        replica = match["replica"] or replica
        process = match["torch"] or match["mpi"] or process
        level = _level_of(match) or level
        if match["level"]:
            name = _AFTER_LEVEL.match(shown, position)
            position = name.end() if name else position
    text = shown[position:].translate(_PLAIN_QUOTES)
    return Line(
        text=text,
        shown=shown,
        level=_final_level(level, text),
        replica=int(replica) if replica else None,
        process=int(process) if process else None,
    )


def _level_of(prefix: re.Match[str]) -> Level | None:
    in_tag = _LEVEL_WORD.search(prefix["tag"]) if prefix["tag"] else None
    word = prefix["level"] or prefix["glog"] or (in_tag[1] if in_tag else "")
    if not word:
        return None
    return Level.QUIET if word in _QUIET_WORDS else Level.LOUD


def _final_level(level: Level, text: str) -> Level:
    if _QUIET_LINE.search(text):
        return Level.QUIET
    if level is Level.PLAIN and _LOUD_LINE.search(text):
        return Level.LOUD
    return level
