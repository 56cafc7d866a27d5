"""Reading YAML and JSON that others wrote: text, numbers, lists, mappings, and nothing else.

A file of a few lines can ask for endless memory (aliases and merges of aliases), for endless time
(numbers of base 60) or end the interpreter (nesting that exhausts the stack of the parser in C);
all of these are refused before anything is built. As in the TAO containers,
whose reader of YAML is OmegaConf, `1e-5` is a number and `2026-01-31` is text.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, NamedTuple

__all__ = ["MAX_DEPTH", "parse_json", "parse_yaml", "yaml_loader"]

MAX_DEPTH = 100
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
_MOST_VALUES = 500_000
_TOO_MANY = f"with its aliases it has more than {_MOST_VALUES} values"
_MOST_DIGITS = 300  # about as many as the largest float has
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$")
_PLAIN = (str, int, float, type(None))


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says; `Infinity` is a number. Raises `ValueError`, in one line."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _refuse_unusual(content)
    return content


def parse_yaml(text: str) -> Any:
    """What a YAML text says. Raises `ValueError`, in one line, for anything that is not plain."""
    import yaml  # here, so that importing the SDK does not load it

    try:
        _refuse_size(text)
        content = yaml.load(text, Loader=yaml_loader())  # noqa: S506 - built upon a safe one
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    _refuse_unusual(content)
    return content


@cache
def yaml_loader() -> Any:
    """The class that reads: PyYAML's safe one, in C where it was built, ten times as fast."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen when it runs
        """With what looks like a number or a date resolved as OmegaConf does."""

        def bounded_int(self, node: Any) -> Any:
            return self.construct_yaml_int(_bounded(node))

        def bounded_float(self, node: Any) -> Any:
            return self.construct_yaml_float(_bounded(node))

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(_FLOAT, _EXPONENT, list("-+.0123456789"))
    Loader.add_constructor(_INT, Loader.bounded_int)
    Loader.add_constructor(_FLOAT, Loader.bounded_float)
    return Loader


def _bounded(number: Any) -> Any:
    """Numbers of base 60 take time with the square of their length."""
    if len(number.value) > _MOST_DIGITS:
        raise ValueError(f"a number has more than {_MOST_DIGITS} digits: put text in quotes")
    return number


class _Size(NamedTuple):
    """How many nodes a list or mapping has, and how many levels. A scalar has one and none."""

    nodes: int
    levels: int


def _refuse_size(text: str) -> None:
    """Before anything is built, which goes down as deep as the text and its aliases do.

    An alias counts as all that it repeats, because a merge key copies that.
    """
    import yaml

    scalar, unfinished = _Size(1, 0), _Size(1, MAX_DEPTH)
    open_ones: list[tuple[str | None, _Size]] = [(None, scalar)]  # the first is the whole text
    anchored: dict[str | None, _Size] = {}
    for event in yaml.parse(text, Loader=yaml_loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((event.anchor, _Size(1, 1)))
            anchored[event.anchor] = unfinished  # an alias below it would have no end
            if len(open_ones) - 1 > MAX_DEPTH:
                raise ValueError(_TOO_DEEP)
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_ones.pop()
            anchored[anchor] = size
        elif isinstance(event, yaml.AliasEvent):
            size = anchored.get(event.anchor, scalar)
        elif isinstance(event, yaml.ScalarEvent):
            size = anchored[event.anchor] = scalar
        else:
            continue
        if len(open_ones) - 1 + size.levels > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        anchor, parent = open_ones[-1]
        nodes = parent.nodes + size.nodes
        if nodes > 2 * _MOST_VALUES:  # keys are nodes, too
            raise ValueError(_TOO_MANY)
        open_ones[-1] = (anchor, _Size(nodes, max(parent.levels, size.levels + 1)))


def _refuse_unusual(content: Any) -> None:
    """Counts every value as often as aliases repeat it."""
    open_values, seen = [(content, 0)], 0
    while open_values:
        value, depth = open_values.pop()
        seen += 1
        if depth > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        if seen > _MOST_VALUES:
            raise ValueError(_TOO_MANY)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"the key {key!r} is not text: put it in quotes")
            open_values.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, list):
            open_values.extend((item, depth + 1) for item in value)
        elif not isinstance(value, _PLAIN):
            kind = type(value).__name__
            raise ValueError(f"a value of type {kind} is neither text nor number, list or mapping")
