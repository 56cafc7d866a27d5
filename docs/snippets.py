"""The fenced blocks of a page, and which of them the tests run.

`python` blocks and `console` blocks (lines that begin with `$`) are run, and `output` blocks are
compared with what the `python` block above printed. Anything else that looks like a program says
in a comment directly above why it is not run::

    <!-- not run: it takes five minutes -->

Blocks that are cut out of a file (`<!-- generated: code FILE NAMES -->`) are tested in that file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RUN = frozenset({"python", "console"})
COMPARED = frozenset({"output"})
SHOWN = frozenset({"text", "toml"})

_FENCED = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[^\n]*)\n"
    r"(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_REASON = re.compile(
    r"<!-- (?:not run: (?P<why>[^>]+)|generated: code (?P<file>[^ ]+)[^>]*) -->\s*$"
)


@dataclass(frozen=True)
class Snippet:
    """One fenced block."""

    language: str
    text: str
    line: int
    """The number of its first line of text."""
    not_run: str = ""
    """Why it is not run, if it says so."""

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.not_run

    @property
    def is_compared(self) -> bool:
        return self.language in COMPARED

    @property
    def is_accounted_for(self) -> bool:
        """Whether it is run, compared, no program, or says why it is not run."""
        return self.is_run or bool(self.not_run) or self.language in COMPARED | SHOWN


def snippets_of(markdown: str) -> list[Snippet]:
    """The fenced blocks of a page in their order."""
    return [
        Snippet(
            block["language"].strip(),
            block["text"],
            markdown.count("\n", 0, block.start("text")) + 1,
            _reason_above(markdown[: block.start()]),
        )
        for block in _FENCED.finditer(markdown)
    ]


def _reason_above(text: str) -> str:
    found = _REASON.search(text)
    if found is None:
        return ""
    return found["why"] or f"a part of {found['file']}"
