"""Values in nested specs, by paths such as `train.optim.lr` and `data[0].path`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tao_sdk.planning.spec_paths import get_value, parse
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.place_names import EVERY, render
from tao_sdk.skills.errors import SpecError

if TYPE_CHECKING:
    from tao_sdk.runner.places import SpecPath

__all__ = ["MANDATORY", "holds", "is_unset", "leaves", "parsed", "put", "value_at"]

MANDATORY = "???"
"""Stands in templates for a value that must be given."""


def parsed(key: str) -> SpecPath:
    """The parts of a path."""
    try:
        return parse(key)
    except RunnerError as error:
        raise SpecError(str(error)) from None


def value_at(spec: Any, key: str) -> Any:
    """The value at a path; None where there is none."""
    return get_value(spec, parsed(key))


def is_unset(value: Any) -> bool:
    """Whether a template leaves the value open: blank, null, the mandatory mark, or a list of
    nothing else.

    Zero and False are values.
    """
    if isinstance(value, list):
        return all(map(is_unset, value))
    return value is None or value == MANDATORY or value in ("", {})


def holds(spec: Any, path: SpecPath) -> bool:
    """Whether there is such a place, whatever its value."""
    for part in path:
        if isinstance(part, str):
            if not isinstance(spec, dict) or part not in spec:
                return False
        elif not isinstance(spec, list) or part >= len(spec):
            return False
        spec = spec[part]
    return True


def put(spec: dict[str, Any], key: str, value: Any) -> None:
    """Set the value at a path. Sections that are missing are made, and a list's next item."""
    path = parsed(key)
    node: Any = spec
    for depth, part in enumerate(path):
        is_last = depth + 1 == len(path)
        below: Any = value if is_last else [] if isinstance(path[depth + 1], int) else {}
        _require(node, part, path, depth)
        if isinstance(part, int):
            if part == len(node):
                node.append(below)
            elif is_last or is_unset(node[part]):
                node[part] = below
        elif is_last or is_unset(node.get(part)):
            node[part] = below
        node = node[part]


def leaves(node: Any, here: SpecPath = ()) -> Iterator[tuple[SpecPath, Any]]:
    """Every value of a spec that is no section, with its path."""
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from leaves(value, (*here, name))
    elif isinstance(node, list) and node:
        for index, value in enumerate(node):
            yield from leaves(value, (*here, index))
    else:
        yield here, node


def _require(node: Any, part: str | int, path: SpecPath, depth: int) -> None:
    where = render(path[:depth]) or "the spec"
    if isinstance(part, str) and not isinstance(node, dict):
        raise SpecError(f"{render(path)}: {where} is {node!r}, not a section")
    if part == EVERY:
        raise SpecError(f"{render(path)}: say which item is meant, such as [0]")
    if isinstance(part, int):
        if not isinstance(node, list):
            raise SpecError(f"{render(path)}: {where} is {node!r}, not a list")
        if not 0 <= part <= len(node):
            raise SpecError(
                f"{render(path)}: {where} has {len(node)} items, so [{part}] cannot be set"
            )
