"""Places as people write them: `a.b[0]`, `a[*].b`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .places import SpecPath

EVERY = -1
"""Stands in a parsed path for `[*]`."""

PLAIN_NAME = r'[^.\[\]"]+'


def render(path: SpecPath) -> str:
    """The path as text; `parse` gives the same path back."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += "[*]" if part == EVERY else f"[{part}]"
        elif re.fullmatch(PLAIN_NAME, part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part)}]"
    return text
