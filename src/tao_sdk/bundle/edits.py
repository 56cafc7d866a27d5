"""Changes of a source at places that its syntax tree names."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tao_sdk.bundle.tokens import offsets

Edit = tuple[int, int, str]
"""Start and end in characters, and what stands there instead."""

Located = ast.expr | ast.stmt | ast.arg


def apply(source: str, edits: Iterable[Edit]) -> str:
    for start, end, replacement in sorted(edits, reverse=True):
        source = source[:start] + replacement + source[end:]
    return source


class Places:
    """Where the parts of a syntax tree stand in its source."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._offset = offsets(source)

    def start(self, node: Located) -> int:
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: Located) -> int:
        return self._offset(node.end_lineno or 0, node.end_col_offset or 0)

    def without(self, node: Located, instead: str = "") -> Edit:
        return self.start(node), self.end(node), instead

    def arrow_before(self, node: Located) -> int:
        return self._source.rindex("->", 0, self.start(node))
