"""Values that a user sets in a spec, by dotted key or by the model's short names.

A key must exist: in the template, in the schema, or among what the metadata declares. A typing
error would otherwise train a model with the default, silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tao_sdk.runner.place_names import render
from tao_sdk.skills.errors import MissingNameError, SpecError
from tao_sdk.skills.names import choices_for
from tao_sdk.skills.spec_values import holds, leaves, parsed, put, value_at

__all__ = ["apply_overrides", "known_keys", "schema_keys"]

_SUGGESTED = 4
_INDEX = re.compile(r"\[(?:[0-9]+|\*)\]")


def apply_overrides(
    spec: dict[str, Any],
    overrides: Mapping[str, Any],
    *,
    shorthand: Mapping[str, str],
    known: Iterable[str],
    checked: bool = True,
) -> list[str]:
    """Set the values; returns the dotted keys that were set.

    A mapping given for a section sets what it names and leaves the rest of the section alone.
    Without `checked` (there is neither a template nor a schema) any key is right.
    """
    known_places = {_INDEX.sub("[]", key) for key in known}
    done = []
    for asked, given in overrides.items():
        base = shorthand.get(asked, asked)
        for key, value in _single_values(spec, base, given):
            if checked and not _is_known(spec, key, known_places):
                offered = {_plain(place) for place in known_places} | set(shorthand)
                raise MissingNameError(f"the spec has no key {key!r}: {_nearest(key, offered)}")
            put(spec, key, value)
            done.append(key)
    return done


def known_keys(spec: Mapping[str, Any], schema: Mapping[str, Any] | None) -> set[str]:
    """The keys of a template and of a schema: values and sections."""
    keys = set(schema_keys(schema or {}))
    for path, _ in leaves(spec):
        keys.update(render(path[:length]) for length in range(1, len(path) + 1))
    return keys


def schema_keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys that a schema knows."""
    for name, child in (node.get("properties") or {}).items():
        if isinstance(child, dict):
            yield f"{prefix}{name}"
            yield from schema_keys(child, f"{prefix}{name}.")


def _single_values(spec: Mapping[str, Any], key: str, given: Any) -> Iterator[tuple[str, Any]]:
    """A mapping for a section that has contents means its single values."""
    current = value_at(spec, key)
    if isinstance(given, Mapping) and isinstance(current, dict) and current:
        for name, value in given.items():
            if not isinstance(name, str):
                raise SpecError(f"{key}: the key {name!r} is not text")
            yield from _single_values(spec, f"{key}.{name}", value)
    else:
        yield key, given


def _is_known(spec: Mapping[str, Any], key: str, known_places: set[str]) -> bool:
    path = parsed(key)
    if holds(spec, path) or _INDEX.sub("[]", key) in known_places:
        return True
    # What is below an open section or in a list without a pattern is the model's own affair.
    for length in range(len(path) - 1, 0, -1):
        parent = render(path[:length])
        place = _INDEX.sub("[]", parent)
        if place in known_places or holds(spec, path[:length]):
            inside = {p for p in known_places if p.startswith((f"{place}.", f"{place}[]"))}
            return not inside
    return False


def _nearest(key: str, offered: set[str]) -> str:
    """A key of that name in another section, else one that is spelt alike."""
    name = key.rpartition(".")[2]
    elsewhere = sorted(other for other in offered if other.rpartition(".")[2] == name)
    if 0 < len(elsewhere) <= _SUGGESTED:
        return f"did you mean {' or '.join(map(repr, elsewhere))}?"
    return choices_for(key, offered)


def _plain(place: str) -> str:
    return place.replace("[]", "[0]")
