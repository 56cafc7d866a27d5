"""One entry of the catalogue, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from tao_sdk.failures.err_class import ErrClass

LONGEST_VALUE = 160


class Standing(IntEnum):
    """How much a match says about why the job ended; the higher one wins."""

    ECHO = 0
    """What a launcher says when one of its processes has failed."""
    COLLATERAL = 1
    """What other ranks print when one has failed."""
    PRIMARY = 2
    """What a program prints about its own failure."""
    DECISIVE = 3
    """What is written by whoever ended the job: the kernel, the driver, the scheduler."""


@dataclass(frozen=True)
class Cause:
    """A failure we know: how to recognise it, what to say, what to do.

    `cause` and `suggestion` may use the named groups of the match as `{name}`; a part in square
    brackets is left out when one of its names has no value. Patterns are compiled when they are
    first needed: most processes never explain a failure.
    """

    id: str
    err_class: ErrClass
    cause: str
    suggestion: str
    log: tuple[str, ...] = ()
    """Any of these in a line of the log; `^` and `$` are the ends of a line."""
    reason: tuple[str, ...] = ()
    """Any of these in what the platform says about the job."""
    exit_codes: tuple[int, ...] = ()
    """Any of these is enough, when nothing better is known."""
    only_with: tuple[int, ...] = ()
    """The log counts only when the job ended with one of these exit codes."""
    standing: Standing = Standing.PRIMARY
    specificity: int = 50
    """Between causes of one moment the more specific one wins."""
    even_as_warning: bool = False
    """The log counts even in lines that call themselves information or warning."""
    sample: str = ""
    """What such a log looks like."""

    @cached_property
    def log_patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(pattern, re.MULTILINE) for pattern in self.log)

    @cached_property
    def reason_patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(pattern, re.MULTILINE) for pattern in self.reason)


def raised(types: str, message: str = "") -> str:
    """The pattern of a Python exception, as the last line of its traceback shows it."""
    return rf"^(?:[\w.]{{0,100}}\.)?(?:{types})(?:: |:?$){message}"


def cuda(message: str) -> str:
    """The pattern of an error of the CUDA runtime, from Python or from C++."""
    return (
        r"^(?:[\w.]{0,110}(?:Error|Exception): |\s{0,4}what\(\): {1,4})?"
        rf"CUDA (?:runtime |driver )?(?:error|failure)(?: \d+)?:? {message}"
    )


_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"\{(\w+)\}")


def fill(template: str, values: Mapping[str, str | None]) -> str:
    """`template` with its names replaced, without the optional parts that lack a value."""
    known = {name: _shorten(value) for name, value in values.items() if value}

    def keep(match: re.Match[str]) -> str:
        return match[1] if all(name in known for name in _NAME.findall(match[1])) else ""

    return _NAME.sub(lambda name: known.get(name[1], "?"), _OPTIONAL.sub(keep, template))


def _shorten(value: str) -> str:
    value = " ".join(value.split())
    return value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 1]}…"
