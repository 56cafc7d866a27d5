"""Conditions that schemas put on numbers (`math_cond`): `> 0.0 <= 1.0`, `/ 8`, `^ 2`.

`/ 8` is a multiple of 8, `^ 2` a power of 2, `> depends_on` greater than another value of the spec.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable

from tao_sdk.skills.errors import MetadataError

__all__ = ["broken_condition", "parse_condition"]

DEPENDS_ON = "depends_on"

_NUMBER = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?![0-9.])"
_PIECE = re.compile(rf"\s*(>=|<=|!=|==|>|<|/|\^)\s*({_NUMBER}|depends_on)")
_COMPARISONS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "!=": operator.ne,
    "==": operator.eq,
}
_WORDS = {
    ">": "greater than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
    "!=": "other than",
    "==": "equal to",
    "/": "a multiple of",
    "^": "a power of",
}


def parse_condition(text: str) -> list[tuple[str, str]]:
    """The pieces of a condition, all of which must hold."""
    pieces, position = [], 0
    while text[position:].strip():
        match = _PIECE.match(text, position)
        if match is None:
            raise MetadataError(f"{text!r} is not a condition such as '> 0.0 <= 1.0' or '/ 8'")
        if match[1] == "/" and match[2] != DEPENDS_ON and float(match[2]) == 0:
            raise MetadataError(f"{text!r} is no condition: nothing is a multiple of 0")
        pieces.append((match[1], match[2]))
        position = match.end()
    return pieces


def broken_condition(value: float, text: str, depended_on: Iterable[float]) -> str:
    """What the value must be and is not; "" when the condition holds."""
    others = list(depended_on)
    for sign, operand in parse_condition(text):
        for limit in others if operand == DEPENDS_ON else [_number(operand)]:
            if not _holds(sign, value, limit):
                return f"{_WORDS[sign]} {limit:g}"
    return ""


def _holds(sign: str, value: float, limit: float) -> bool:
    if sign in _COMPARISONS:
        return bool(_COMPARISONS[sign](value, limit))
    if sign == "/":
        return limit != 0 and value % limit == 0
    return _is_power(value, limit)


def _number(text: str) -> float:
    """Whole where it is whole: large numbers are exact then."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _is_power(value: float, base: float) -> bool:
    """By division: logarithms are not exact."""
    if value < 1 or base <= 1:
        return False
    while value % base == 0:
        value = value // base
    return value == 1
