"""Python source taken apart, alike on all Pythons that pack, and put together again."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_PLAIN_TEXT = re.compile(r'(?P<prefix>f?)"(?!"")(?P<content>.*)"')
_OPEN_ESCAPE = re.compile(r"\\[0-7]{1,2}$")
"""What digits behind it would become a part of."""


class Token(NamedTuple):
    kind: int
    text: str
    start: int
    """Where it is in the source, in characters."""
    end: int


def tokens(source: str) -> Iterator[Token]:
    """Every token; an f-string is one, as it was to Pythons before 3.12."""
    line_starts = _line_starts(source)
    opened: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        start, end = (line_starts[line - 1] + column for line, column in (token.start, token.end))
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            opened.append(start)
        elif kind == "FSTRING_END":
            start = opened.pop()
            if not opened:
                yield Token(tokenize.STRING, source[start:end], start, end)
        elif not opened:
            yield Token(token.type, token.string, start, end)


def offsets(source: str) -> Callable[[int, int], int]:
    """From positions of the syntax tree (lines from 1, columns in bytes) to characters."""
    lines, line_starts = source.splitlines(), _line_starts(source)

    def offset(line: int, column: int) -> int:
        return line_starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    return offset


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    # The tokens behind the last line, which are empty, have places of their own.
    return [*starts, starts[-1]]


def join(row: Iterable[Token]) -> str:
    """The text of tokens without comments, each statement on one line, and with few blanks."""
    level, line, lines = 0, "", []
    for token in _with_joined_texts(_without_last_commas(row)):
        if token.kind == tokenize.INDENT:
            level += 1
        elif token.kind == tokenize.DEDENT:
            level -= 1
        elif token.kind == tokenize.NEWLINE:
            lines.append(line + "\n")
            line = ""
        elif token.kind != tokenize.ENDMARKER:
            if "\n" in token.text:
                raise ValueError(f"{token.text}: a text on several lines cannot travel")
            if not line:
                line = " " * level
            elif _in_word(line[-1]) and _in_word(token.text[0]):
                line += " "
            line += token.text
    return "".join(lines)


def _without_last_commas(row: Iterable[Token]) -> Iterator[Token]:
    """Leaves out comments, and a comma behind the last of several things in brackets."""
    row = [token for token in row if token.kind not in (tokenize.NL, tokenize.COMMENT)]
    commas = [0]
    for token, following in zip(row, [*row[1:], None], strict=True):
        if token.kind == tokenize.OP:
            if token.text in "([{":
                commas.append(0)
            elif token.text in ")]}":
                commas.pop()
            elif token.text == ",":
                commas[-1] += 1
                # Behind a single thing it makes a tuple.
                if following and following.text in (")", "]", "}") and commas[-1] > 1:
                    continue
        yield token


def _with_joined_texts(row: Iterable[Token]) -> Iterator[Token]:
    """Texts that stand side by side in one pair of quotes, if they are in quotes of one kind."""
    before: Token | None = None
    for token in row:
        if before and before.kind == token.kind == tokenize.STRING:
            joined = _joined(before.text, token.text)
            if joined:
                before = token._replace(text=joined, start=before.start)
                continue
        if before:
            yield before
        before = token
    if before:
        yield before


def _joined(first: str, second: str) -> str:
    """One literal instead of two; "" where that is not as easy."""
    left, right = _PLAIN_TEXT.fullmatch(first), _PLAIN_TEXT.fullmatch(second)
    if not left or not right or _OPEN_ESCAPE.search(left["content"]):
        return ""
    for one, other in ((left, right), (right, left)):
        if one["prefix"] and not other["prefix"] and re.search("[{}]", other["content"]):
            return ""
    prefix = left["prefix"] or right["prefix"]
    return f'{prefix}"{left["content"]}{right["content"]}"'


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"
