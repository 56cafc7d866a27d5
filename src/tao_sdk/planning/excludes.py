"""Which results stay behind: patterns with the meaning that they have in a .gitignore file.

They are understood here, on the client; the runner gets regular expressions for whole paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tao_sdk.runner.excludes import Rule

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


def compile_excludes(patterns: Iterable[str]) -> list[Rule]:
    """The rules of the patterns that say anything, in their order."""
    return [rule for pattern in patterns if (rule := _compile(pattern)) is not None]


def _compile(pattern: str) -> Rule | None:
    """A line of the file; None for one that matches nothing."""
    pattern = _without_trailing_spaces(pattern.rstrip("\r\n"))
    if pattern.startswith("#"):
        return None
    negated = pattern.startswith("!")
    glob = pattern[1:] if negated else pattern
    folders_only = glob.endswith("/")
    glob = glob[:-1] if folders_only else glob
    # Without a slash in it, a pattern means names in any folder.
    regex = _translate(glob[1:] if glob.startswith("/") else glob) if glob else None
    if regex is None:
        return None
    return (regex if "/" in glob else f"(?:.*/)?{regex}"), negated, folders_only


def _without_trailing_spaces(pattern: str) -> str:
    stripped = pattern.rstrip(" ")
    escapes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if escapes % 2 and stripped != pattern else stripped


def _translate(glob: str) -> str | None:
    """The glob as a regular expression; None for one that git, too, lets match nothing."""
    result = ""
    i = 0
    while i < len(glob):
        char = glob[i]
        if char == "*":
            end = i + len(glob[i:]) - len(glob[i:].lstrip("*"))
            # Two or more stars between slashes stand for any number of folders.
            whole = (
                end - i > 1 and glob[i - 1 : i] in ("", "/") and glob[end : end + 1] in ("", "/")
            )
            if not whole:
                result += "[^/]*"
            elif end == len(glob):
                result += ".*"
            else:
                result += "(?:.*/)?"
                end += 1
            i = end
        elif char == "?":
            result += "[^/]"
            i += 1
        elif char == "[":
            found = _translate_class(glob, i + 1)
            if found is None:
                return None
            text, i = found
            result += text
        else:
            if char == "\\":
                i += 1
                if i == len(glob):
                    return None
            result += re.escape(glob[i])
            i += 1
    return result


def _translate_class(glob: str, i: int) -> tuple[str, int] | None:
    """`[...]` from behind its bracket, and where it ends; None when it does not."""
    negated = glob[i : i + 1] in ("!", "^")
    i += negated
    first, items, previous = i, "", ""
    while i < len(glob) and (glob[i] != "]" or i == first):
        named = re.compile(r"\[:([^\]]*):\]").match(glob, i)
        if named is not None:
            if named[1] not in _CLASSES:
                return None
            items += _CLASSES[named[1]]
            i, previous = named.end(), ""
        elif glob[i] == "-" and previous and glob[i + 1 : i + 2] not in ("", "]"):
            last, i = _class_char(glob, i + 1)
            if previous <= last:
                items += f"{re.escape(previous)}-{re.escape(last)}"
            previous = ""
        else:
            previous, i = _class_char(glob, i)
            items += re.escape(previous)
    if i >= len(glob):
        return None
    # A range that runs backwards is empty, and so may be the whole class.
    inner = f"[{'^' if negated else ''}{items}]" if items else ("." if negated else "(?!)")
    return f"(?!/){inner}", i + 1


def _class_char(glob: str, i: int) -> tuple[str, int]:
    """One character of a class, escaped or not, and what comes after; "" at the pattern's end."""
    if glob[i] == "\\":
        i += 1
    return glob[i : i + 1], i + 1
