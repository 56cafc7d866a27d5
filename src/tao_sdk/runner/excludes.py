"""Which results stay behind, by rules that the client made of patterns (`planning/excludes.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Rule = tuple[str, bool, bool]
    """What a whole path has to match; whether it then stays after all; only if it is a folder."""


class Excludes:
    """An ordered list of rules; the last one that matches decides."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [
            (re.compile(regex, re.DOTALL), negated, folders_only)
            for regex, negated, folders_only in reversed(rules)
        ]

    def excluded(self, path: str, is_folder: bool) -> bool:
        """Does `path`, relative and with forward slashes, stay behind?

        What is in an excluded folder is not asked about, whatever later rules say about it.
        """
        for regex, negated, folders_only in self._rules:
            if (is_folder or not folders_only) and regex.fullmatch(path):
                return not negated
        return False
