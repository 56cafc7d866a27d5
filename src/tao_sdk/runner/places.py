"""Places in nested data: tuples of names and indices, as `a.b[0]` is ("a", "b", 0).

The client has seen to it that a plan's places can exist (`planning/spec_paths.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    SpecPath = tuple[str | int, ...]


def value_at(spec: Any, path: SpecPath) -> Any:
    """The value at a place that exists."""
    for part in path:
        spec = spec[part]
    return spec


def set_value(spec: Any, path: SpecPath, value: Any) -> None:
    """Put a value in a place. Sections that are missing are made; list items never."""
    for part in path[:-1]:
        spec = spec.setdefault(part, {}) if isinstance(part, str) else spec[part]
    spec[path[-1]] = value


def remove(spec: Any, path: SpecPath) -> None:
    """Take out a place that exists; later items of a list move up."""
    del value_at(spec, path[:-1])[path[-1]]
