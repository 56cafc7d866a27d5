"""What launchers testify about the processes they started: who ended first, and how.

A launcher's own exit code is 1 whatever happened below it; its last words tell more.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from tao_sdk.failures.log_lines import Line

_BLOCK = 8
_ROOT = "Root Cause (first observed failure)"
_ROOT_FACTS = {
    "rank": re.compile(r"^\s*rank\s*: (\d+)"),
    "host": re.compile(r"^\s*host\s*: (\S+)"),
    "code": re.compile(r"^\s*exitcode\s*: (-?\d+)"),
}
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^srun: error: (?P<host>\S{1,80}): tasks? (?P<rank>\d+)[\d,-]{0,40}: "
        r"(?:Exited with exit code (?P<code>\d+)|(?P<word>[A-Z][\w ]{2,30}))",
        r"^mpirun noticed that process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S{1,80}) "
        r"exited on signal (?P<signal>\d+)",
        r"ProcessExitedException: process (?P<rank>\d+) terminated with signal (?P<word>SIG\w+)",
        r"ProcessExitedException: process (?P<rank>\d+) terminated with exit code (?P<code>\d+)",
        r"^-- Process (?P<rank>\d+) terminated with the following error",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) ",
        r"CalledProcessError: Command .{1,1000} died with <Signals\.(?P<word>SIG\w+): \d+>",
        r"\bexits with return code = -(?P<signal>\d+)",
    )
)
_SPEAKS = re.compile(
    r"srun: error|mpirun noticed|terminated with|\(exitcode: |died with <|return code = -"
)
_WORDS = {
    "Killed": signal.SIGKILL,
    "Out Of Memory": signal.SIGKILL,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Terminated": signal.SIGTERM,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
}


@dataclass(frozen=True)
class Testimony:
    """What a launcher said about the process that ended first."""

    rank: int | None = None
    host: str = ""
    code: int | None = None


def hear(lines: Sequence[Line]) -> Testimony:
    """The most telling launcher's word; an empty one when there is none."""
    for index, line in enumerate(lines):
        if _ROOT in line.text:
            return _root_cause(lines[index + 1 : index + 1 + _BLOCK])
    heard = (_hear_line(line.text) for line in lines if _SPEAKS.search(line.text))
    # Processes that were asked to stop did not end first.
    own = (one for one in heard if one is not None and one.code != 128 + signal.SIGTERM)
    return next(own, Testimony())


def _hear_line(text: str) -> Testimony | None:
    matches = (pattern.search(text) for pattern in _PATTERNS)
    return next((_read(match.groupdict()) for match in matches if match), None)


def _root_cause(block: Sequence[Line]) -> Testimony:
    facts: dict[str, str] = {}
    for line in block:
        for name, pattern in _ROOT_FACTS.items():
            match = pattern.search(line.text)
            if match:
                facts.setdefault(name, match[1])
    return _read(dict(facts))


def _read(facts: dict[str, str | None]) -> Testimony:
    rank = facts.get("rank")
    return Testimony(
        rank=int(rank) if rank else None, host=facts.get("host") or "", code=_code(facts)
    )


def _code(facts: dict[str, str | None]) -> int | None:
    number, word = facts.get("signal"), facts.get("word") or ""
    if number:
        return 128 + int(number)
    if word in _WORDS:
        return 128 + _WORDS[word]
    if word in signal.Signals.__members__:
        return 128 + signal.Signals[word]
    code = facts.get("code")
    if code is None:
        return None
    return int(code) if int(code) >= 0 else 128 - int(code)
