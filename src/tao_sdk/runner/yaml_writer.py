"""YAML in block style, such that YAML 1.1 (PyYAML) and 1.2 readers agree about every value."""

from __future__ import annotations

import re
from typing import Any

from .scalar_writer import float_text, quoted

# A longer key must be introduced by "? "; readers give up on finding its colon (PyYAML at 1024).
_LONGEST_SIMPLE_KEY = 512

_WORDS_WITH_MEANING = frozenset(
    {"y", "n", "yes", "no", "on", "off", "true", "false", "null", ".inf", ".nan"}
)
# Everything built from these characters might be a number, a date or a time in some version of
# YAML: 1e3, 0o7, 0x1F, 1_000, 12:30:00, 2024-01-01T00:00:00Z, .5, and `...` ends a document.
_MAYBE_NUMBER_OR_DATE = re.compile(r"[0-9.][0-9a-fA-FoOxXtTzZ_.:+\- ]*")
# A first character that cannot begin any YAML syntax. Other ASCII signs mostly do.
_PLAIN_START = re.compile(r"[A-Za-z0-9_/$.]|[^\x00-\x7f]")


def dump_yaml(spec: dict[str, Any]) -> str:
    return "\n".join(_block(spec)) + "\n"


def _block(value: Any) -> list[str]:
    """The lines of a value, not indented."""
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(_scalar(key), item)]
    if isinstance(value, list) and value:
        return [line for item in value for line in _hang("- ", _block(item))]
    return [_scalar(value)]


def _entry(key: str, value: Any) -> list[str]:
    lines = _block(value)
    if len(key) > _LONGEST_SIMPLE_KEY:
        return ["? " + key, *_hang(": ", lines)]
    if isinstance(value, (dict, list)) and value:
        return [key + ":", *("  " + line for line in lines)]
    return [key + ": " + lines[0]]


def _hang(mark: str, lines: list[str]) -> list[str]:
    return [mark + lines[0], *("  " + line for line in lines[1:])]


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, str):
        return value if _reads_back_as_text(value) else quoted(value)
    # What is left is an integer or an empty container, whose Python text is YAML too.
    return str(value)


def _reads_back_as_text(text: str) -> bool:
    """Whether a reader takes the bare text for exactly this string."""
    return (
        text.isprintable()
        and _PLAIN_START.match(text) is not None
        and not text.endswith((" ", ":"))
        and ": " not in text
        and " #" not in text
        and text.lower() not in _WORDS_WITH_MEANING
        and _MAYBE_NUMBER_OR_DATE.fullmatch(text) is None
        and not text.startswith("...")
    )
