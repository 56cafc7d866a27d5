"""Docstrings as Markdown: what the site's API pages are made with.

Docstrings set code apart as reStructuredText does, with `::` before an indented block. Markdown
needs the indentation only, and would show the colons.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_COLONS_ALONE = re.compile(r"^::\n\n", re.MULTILINE)
_COLONS_AT_THE_END = re.compile(r"(?<=\w)::$", re.MULTILINE)


class LiteralBlocks(griffe.Extension):
    """Takes the colons away."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    return _COLONS_AT_THE_END.sub(":", _COLONS_ALONE.sub("", docstring))
