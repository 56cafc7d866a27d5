"""Python tracebacks in a log: where they are, which belong together, which do no harm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from tao_sdk.failures.log_lines import Level, Line

_HEADER = "Traceback (most recent call last)"
_LONGEST_MESSAGE = 14
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,150})(?:: (?P<message>.*)|:?)$")
_FRAME = re.compile(
    r'\s{0,40}File "(?P<file>[^"]{1,300})", line (?P<line>\d+)(?:, in (?P<name>.{1,80}))?'
)
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python3|^<frozen|\.pyx$")
# Box drawing: tracebacks printed by the `rich` package.
_INSIDE = (" ", "\t", "│", "╭", "╰", "|", "+")
_CHAINED = re.compile(
    r"^The above exception was the direct cause of the following exception:"
    r"|^During handling of the above exception, another exception occurred:"
    r"|^-- Process \d+ terminated with the following error:"
    r"|Original Traceback \(most recent call last\)"
    r"|terminated with the following error"
)
_HARMLESS_BEFORE = re.compile(
    r"^Exception ignored in|^--- Logging error ---|^Error in atexit\._run_exitfuncs"
    r"|^Exception ignored on|^Error in sys\.excepthook"
)
_HARMLESS_AFTER = re.compile(r"^Exception ignored in: '")
_SIDE_THREAD = re.compile(r"^Exception in thread |^Unhandled exception in thread ")
_SOMETHING_ELSE = re.compile(
    "|".join(pattern.pattern for pattern in (_CHAINED, _HARMLESS_BEFORE, _SIDE_THREAD))
)

# What a program says about an exception when it goes on all the same.
TRIES_AGAIN = re.compile(
    r"\b(?:retrying|will retry|retry in|re-?trying|trying again|falling back|fall back to"
    r"|backing off|skipping|reduc(?:ing|ed) (?:the )?batch)\b|\[Retry \d|\battempt \d+ ?(?:of|/)",
    re.IGNORECASE,
)


class Effect(Enum):
    """What a traceback did to the program."""

    FATAL = "as far as one can see, it ended the program"
    SIDE = "it ended a thread, while the program went on"
    HARMLESS = "it was caught, and the program went on"


@dataclass(frozen=True)
class Traceback:
    """One traceback. Lines are told by their indexes in the log."""

    exception: str
    message: str
    frame: str
    exception_at: int
    quoted: tuple[int, ...]
    """Its header and frames: source code, which says nothing about what happened."""
    said: tuple[int, ...]
    """The exception and its message, which may have several lines."""
    chain: int
    """Tracebacks of one chain tell about one failure."""
    effect: Effect
    uncaught: bool
    """Printed by the interpreter as it gave up, not by the program: PyTorch marks these."""


def find_tracebacks(lines: Sequence[Line]) -> list[Traceback]:
    """Every traceback; the lines of several processes may be mixed."""
    by_process: dict[tuple[int | None, int | None], list[int]] = {}
    for index, line in enumerate(lines):
        by_process.setdefault((line.replica, line.process), []).append(index)
    found: list[Traceback] = []
    for indexes in by_process.values():
        found += _of_one_process(lines, indexes, first_chain=len(found))
    return sorted(found, key=lambda traceback: traceback.exception_at)


def _of_one_process(
    lines: Sequence[Line], indexes: Sequence[int], first_chain: int
) -> list[Traceback]:
    mine = [lines[index] for index in indexes]
    headers = [place for place, line in enumerate(mine) if _HEADER in line.text]
    found: list[Traceback] = []
    previous = 0
    harmful = [place for place in headers if not _is_introduced_as_harmless(mine, place)]
    last = harmful[-1] if harmful else 0
    for header, limit in pairwise([*headers, len(mine)]):
        at = header + 1
        while at < limit and mine[at].text.startswith(_INSIDE):
            at += 1
        if at == limit:
            continue  # torn: nothing to learn from it
        chained = any(_CHAINED.search(line.text) for line in mine[previous : header + 1])
        effect = _effect(mine, header, at, limit, is_last=header >= last)
        end = _end_of_message(mine, at, limit, effect)
        match = _EXCEPTION.match(mine[at].text)
        found.append(
            Traceback(
                exception=match["type"].rpartition(".")[2] if match else "",
                message=match["message"] or "" if match else mine[at].text,
                frame=_last_frame(mine[header:at]),
                exception_at=indexes[at],
                quoted=tuple(indexes[header:at]),
                said=tuple(indexes[at:end]),
                chain=found[-1].chain if found and chained else first_chain + len(found),
                effect=effect,
                uncaught=mine[header].process is not None,
            )
        )
        previous = at
    # A chain did what its last traceback did: the earlier ones only tell why.
    effects = {one.chain: one.effect for one in found}
    return [replace(one, effect=effects[one.chain]) for one in found]


def _is_introduced_as_harmless(mine: Sequence[Line], header: int) -> bool:
    return header > 0 and bool(_HARMLESS_BEFORE.search(mine[header - 1].text))


def _effect(mine: Sequence[Line], header: int, at: int, limit: int, *, is_last: bool) -> Effect:
    introduction = mine[max(0, header - 1) : header]
    if any(_SIDE_THREAD.search(line.text) for line in mine[max(0, header - 2) : header + 1]):
        return Effect.SIDE
    if _is_introduced_as_harmless(mine, header):
        return Effect.HARMLESS
    following = mine[at + 1 : min(at + 3, limit)]
    if following and _HARMLESS_AFTER.search(following[0].text):
        return Effect.HARMLESS
    if any(TRIES_AGAIN.search(line.text) for line in following):
        return Effect.HARMLESS
    # Announced by a logger. But the last one of all was not followed by another try.
    announced = [line for line in introduction if line.level is not Level.PLAIN]
    if not is_last and any(TRIES_AGAIN.search(line.text) for line in announced):
        return Effect.HARMLESS
    return Effect.FATAL


def _end_of_message(mine: Sequence[Line], at: int, limit: int, effect: Effect) -> int:
    """Where a message ends that may have several lines."""
    end = at + 1
    while end < limit and end - at <= _LONGEST_MESSAGE:
        line = mine[end]
        if line.level is not Level.PLAIN or _SOMETHING_ELSE.search(line.text):
            break
        # After an exception that did no harm the program goes on, and so does its own output.
        if effect is not Effect.FATAL and not line.text.startswith(_INSIDE):
            break
        end += 1
    return end


def _last_frame(quoted: Sequence[Line]) -> str:
    """The innermost frame of the user's own code; of a library's, if there is no other."""
    frames = [match for line in quoted if (match := _FRAME.search(line.text))]
    own = [match for match in frames if not _LIBRARY.search(match["file"])]
    for match in (own or frames)[-1:]:
        name = f", in {match['name']}" if match["name"] else ""
        return f"{match['file'].rpartition('/')[2]}:{match['line']}{name}"
    return ""
