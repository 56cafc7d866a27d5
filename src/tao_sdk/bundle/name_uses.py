"""Where names stand in Python source, and what they are there."""

from __future__ import annotations

import keyword
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from tao_sdk.bundle.tokens import Token, tokens

_STRING_START = re.compile(r"(?P<prefix>[A-Za-z]*)(?P<quote>'''|\"\"\"|'|\")")


class Use(NamedTuple):
    """A name where it stands in the source."""

    name: str
    start: int
    role: str
    """variable, attribute (behind a dot), or keyword (of a call)."""


def uses(row: Iterable[Token], parameters: Collection[int] = ()) -> Iterator[Use]:
    """All names among tokens, in their order, also those in the fields of f-strings.

    `parameters` are the places of those that functions declare, which look like keywords.
    """
    row = [token for token in row if token.kind not in (tokenize.NL, tokenize.COMMENT)]
    depth = 0
    for index, token in enumerate(row):
        if token.kind == tokenize.OP:
            depth += token.text in "([{"
            depth -= token.text in ")]}"
        elif token.kind == tokenize.STRING:
            yield from _in_fields(token)
        elif token.kind == tokenize.NAME and not keyword.iskeyword(token.text):
            role = "variable"
            if index and row[index - 1].text == ".":
                role = "attribute"
            elif depth and row[index + 1].text == "=" and token.start not in parameters:
                role = "keyword"
            yield Use(token.text, token.start, role)


def _in_fields(token: Token) -> Iterator[Use]:
    """The names in the fields of an f-string, which Python 3.8 can read: no backslashes there."""
    opening = _STRING_START.match(token.text)
    if opening is None or "f" not in opening["prefix"].lower():
        return
    end = len(token.text) - len(opening["quote"])
    for start, expression in _expressions(token.text, opening.end(), end):
        if expression.rstrip().endswith("="):
            raise ValueError(f"{token.text}: names that a text shows cannot be shortened")
        # In brackets it may have several lines.
        for use in uses(tokens(f"({expression})")):
            yield use._replace(start=token.start + start + use.start - 1)


def _expressions(text: str, at: int, end: int) -> Iterator[tuple[int, str]]:
    """Where the expressions of `{...}` begin in a part of an f-string, and their texts."""
    while at < end:
        if text[at] != "{":
            at += 1
        elif text[at + 1] == "{":
            at += 2
        else:
            start, at = at + 1, _end_of_expression(text, at + 1)
            yield start, text[start:at]
            if text[at] == "!":
                at += 2
            if text[at] == ":":
                closing = _end_of_format(text, at + 1)
                yield from _expressions(text, at + 1, closing)
                at = closing
            at += 1


def _end_of_expression(text: str, at: int) -> int:
    """Where `}`, `!r` or `:` ends the expression that begins here."""
    depth, quote = 0, ""
    while True:
        char = text[at]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif not depth and (char in "}:" or (char == "!" and text[at + 1] != "=")):
            return at
        else:
            depth += char in "([{"
            depth -= char in ")]}"
        at += 1


def _end_of_format(text: str, at: int) -> int:
    depth = 0
    while depth or text[at] != "}":
        depth += text[at] == "{"
        depth -= text[at] == "}"
        at += 1
    return at
