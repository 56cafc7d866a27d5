"""TOML 1.0 that keeps the order of the keys and reads back exactly.

After a `[section]` header a table can take no more keys of its own. So within each table only the
dicts after the last plain value become sections; those before it are written as dotted keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .scalar_writer import float_text, quoted

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WIDEST_LINE = 100


def dump_toml(spec: dict[str, Any]) -> str:
    return "\n".join(_table(spec, ())).lstrip("\n") + "\n"


def _table(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table whose header, if it needs one, is already written."""
    entries = list(table.items())
    first_section = _first_section(entries)
    for key, value in entries[:first_section]:
        yield from _key_lines((key,), value)
    for key, value in entries[first_section:]:
        yield from _sections((*path, key), value)


def _first_section(entries: list[tuple[str, Any]]) -> int:
    """Where the tail of the table begins that can be written as sections."""
    index = len(entries)
    while index and _can_be_section(entries[index - 1][1]):
        index -= 1
    return index


def _can_be_section(value: Any) -> bool:
    return isinstance(value, dict) or _is_list_of_tables(value)


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _sections(path: tuple[str, ...], value: Any) -> Iterator[str]:
    name = _dotted(path)
    if isinstance(value, list):
        for table in value:
            yield from ("", f"[[{name}]]")
            yield from _table(table, path)
        return
    # `[a.b]` brings `[a]` about, so a table of nothing but sections needs no header.
    if not value or _first_section(list(value.items())) > 0:
        yield from ("", f"[{name}]")
    yield from _table(value, path)


def _key_lines(path: tuple[str, ...], value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _key_lines((*path, key), item)
        return
    line = f"{_dotted(path)} = {_inline(value)}"
    if isinstance(value, list) and len(line) > _WIDEST_LINE:
        yield f"{_dotted(path)} = ["
        yield from (f"  {_inline(item)}," for item in value)
        yield "]"
    else:
        yield line


def _inline(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items())
        return "{ " + pairs + " }" if pairs else "{}"
    return str(value)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(_key(part) for part in path)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else quoted(key)
