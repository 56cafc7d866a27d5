"""Paths into nested specs: `a.b`, `a[0].b`, `a[0][1]`, and `a[*].b` for every item of a list.

A name may hold anything but dots, brackets and double quotes; one that does is written as JSON
text in brackets: `classes["a.b"]`. Parsed, a path is a tuple of names and indices.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tao_sdk.plain_data import MAX_DEPTH
from tao_sdk.runner.arguments import same_argument
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.place_names import EVERY, PLAIN_NAME, render
from tao_sdk.runner.places import set_value

if TYPE_CHECKING:
    from tao_sdk.runner.places import SpecPath


_QUOTED = r'\[(?P<quoted>"(?:[^"\\]|\\.)*")\]'
_FIRST = re.compile(rf"(?P<name>{PLAIN_NAME})|{_QUOTED}", re.DOTALL)
_NEXT = re.compile(rf"\.(?P<name>{PLAIN_NAME})|\[(?P<index>[0-9]+|\*)\]|{_QUOTED}", re.DOTALL)
_LOOKS_LIKE_PATH = re.compile(r"[A-Za-z_][\w-]*(\[\d+\])*(\.[A-Za-z_][\w-]*(\[\d+\])*)+")


def parse(text: str) -> SpecPath:
    """The names and indices of a path."""
    if not isinstance(text, str) or not text:
        raise RunnerError(f"{text!r} is not a path into a spec: write it like section.list[0].key")
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        match = (_NEXT if parts else _FIRST).match(text, position)
        if not match:
            raise RunnerError(
                f"{text!r} is not a path into a spec, from {text[position:]!r} on: "
                "write it like section.list[0].key or section.list[*].key"
            )
        found = match.groupdict()
        if found["name"]:
            parts.append(found["name"])
        elif found["quoted"]:
            parts.append(str(json.loads(found["quoted"], strict=False)))
        else:
            parts.append(EVERY if found["index"] == "*" else int(found["index"]))
        position = match.end()
    if len(parts) > MAX_DEPTH:
        raise RunnerError(f"{text[:80]!r}… leads more than {MAX_DEPTH} levels deep into a spec")
    return tuple(parts)


def folder_name(path: SpecPath) -> str:
    """The path as one name of a folder: letters, digits, `_` and `-` only."""
    return "_".join(re.sub(r"[^\w-]", "_", str(part)) for part in path)


def expand(spec: Any, path: SpecPath) -> list[SpecPath]:
    """The places in the spec that the path stands for: none, one, or several through `[*]`."""
    found: list[tuple[SpecPath, Any]] = [((), spec)]
    for part in path:
        found = [
            ((*place, key), value) for place, node in found for key, value in _items_at(node, part)
        ]
    return [place for place, _ in found]


def get_value(spec: Any, path: SpecPath) -> Any:
    """The value at a concrete place; None where there is none."""
    for part in path:
        below = _items_at(spec, part)
        if not below:
            return None
        spec = below[0][1]
    return spec


def _items_at(node: Any, part: str | int) -> list[tuple[str | int, Any]]:
    if isinstance(part, str):
        return [(part, node[part])] if isinstance(node, dict) and part in node else []
    if not isinstance(node, list):
        return []
    if part == EVERY:
        return list(enumerate(node))
    return [(part, node[part])] if part < len(node) else []


def texts(node: Any, here: SpecPath = ()) -> Iterator[tuple[SpecPath, str]]:
    """Every text in the spec with its place."""
    if isinstance(node, str):
        yield here, node
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from texts(value, (*here, name))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from texts(value, (*here, index))


def check_places(spec: Any, paths: Iterable[SpecPath]) -> None:
    """Refuse concrete places that cannot be set, one after the other. The runner just sets them."""
    spec = copy.deepcopy(spec)
    for path in paths:
        _check_place(spec, path)
        set_value(spec, path, "")


def _check_place(node: Any, path: SpecPath) -> None:
    for depth, part in enumerate(path):
        _require_place(node, part, path, path[:depth])
        if depth + 1 < len(path) and isinstance(part, str) and part not in node:
            if not isinstance(path[depth + 1], str):
                missing = render(path[: depth + 1])
                raise RunnerError(f"{render(path)}: the list {missing} is not in the spec: add it")
            node = {}
        elif depth + 1 < len(path):
            node = node[part]


def _require_place(node: Any, part: str | int, path: SpecPath, here: SpecPath) -> None:
    wanted, kind = ("mapping", dict) if isinstance(part, str) else ("list", list)
    name = render(here) or "the spec"
    if not isinstance(node, kind):
        actual = "null" if node is None else f"{type(node).__name__} {node!r}"
        raise RunnerError(f"{render(path)}: {name} should be a {wanted} but is {actual}")
    if isinstance(part, int) and not 0 <= part < len(node):
        raise RunnerError(f"{render(path)}: {name} has {len(node)} items, so [{part}] is not there")


def declarations(declared: Any, what: str) -> list[tuple[str, Mapping[str, Any]]]:
    """What metadata declares, as pairs of a key and its options: from a mapping or a list."""
    if declared is None:
        return []
    if isinstance(declared, (list, tuple)) and all(isinstance(key, str) for key in declared):
        declared = dict.fromkeys(declared)
    if not isinstance(declared, dict):
        raise RunnerError(f"{what} must be a mapping or a list of keys, not {declared!r}")
    for key, options in declared.items():
        if not isinstance(key, str) or not isinstance(options or {}, dict):
            raise RunnerError(
                f"{what}: {key!r}: {options!r} is not a declaration: write KEY: {{type: folder}}"
            )
    return [(key, options or {}) for key, options in declared.items()]


def declared_places(mode: str, values: Any, key: str, missing: bool = False) -> list[SpecPath]:
    """Where a declared key is in a spec or among arguments.

    With `missing`, a place that is not there yet counts too, as long as its list items exist.
    """
    if mode == "args":
        found: list[SpecPath] = [(name,) for name in values if same_argument(name, key)]
        return found or ([(key,)] if missing else [])
    path = parse(key)
    if not missing:
        return expand(values, path)
    fixed = len(path) - path[::-1].index(EVERY) if EVERY in path else 0
    return [place + path[fixed:] for place in expand(values, path[:fixed])]


def flat_dotted_keys(spec: Mapping[str, Any]) -> list[str]:
    """Top-level keys that are paths in disguise."""
    return [key for key in spec if isinstance(key, str) and _LOOKS_LIKE_PATH.fullmatch(key)]


def refuse_flat_keys(spec: Mapping[str, Any]) -> None:
    """`{"train.lr": 1}` is the commonest mistake; the command would never see the value."""
    flat = flat_dotted_keys(spec)
    if flat:
        nested = "..."
        for part in reversed(parse(flat[0])):
            inner = f"{'..., ' if part else ''}{nested}"
            nested = f"{{{json.dumps(part)}: {nested}}}" if isinstance(part, str) else f"[{inner}]"
        raise RunnerError(
            f"specs holds the flat key {', '.join(map(repr, flat))}: a spec is nested, "
            f"so instead of {{{json.dumps(flat[0])}: ...}} write {nested}"
        )
