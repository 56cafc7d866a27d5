r"""Text of others, such as a job or a platform, made safe for the eyes of a person.

On a terminal such text could move the cursor, hide what was printed before, or reverse the order
of the characters. Every view passes it through `visible` or `one_line`, which show such characters
as escapes (`\x1b`, `\r`, `\u202e`).
"""

from __future__ import annotations

import unicodedata

__all__ = ["one_line", "visible"]

# Controls, formatting (bidirectional overrides, zero width), surrogates, line and paragraph ends
_ACTING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class _Escapes(dict[int, str]):
    """What stands for each character, for `str.translate`."""

    def __init__(self, kept: str) -> None:
        super().__init__({code: chr(code) for code in (*range(32, 127), *map(ord, kept))})

    def __missing__(self, code: int) -> str:
        char = chr(code)
        return ascii(char)[1:-1] if unicodedata.category(char) in _ACTING else char


_IN_LINES = _Escapes("\n\t")
_IN_ONE_LINE = _Escapes("")


def visible(text: str, *, lines: bool = True) -> str:
    """The text with every character escaped that acts on a terminal.

    Line ends and tabs stay, unless `lines` is false.
    """
    return text if text.isprintable() else text.translate(_IN_LINES if lines else _IN_ONE_LINE)


def one_line(text: str) -> str:
    """The visible text in one line, with single spaces."""
    return visible(" ".join(text.split()), lines=False)
