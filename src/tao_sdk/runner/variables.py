"""`${env:NAME}` in values: what the container's environment says there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .errors import RunnerError
from .place_names import render

REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def resolve_env(value: Any, env: Mapping[str, str], root: str = "specs") -> Any:
    """A copy of nested data with every `${env:NAME}` in its texts replaced.

    It may be a whole value or a part of one. What a variable holds is not looked at again, so
    a text that must contain `${env:NAME}` itself comes from a variable that holds it.
    """

    def resolved(node: Any, here: tuple[str | int, ...]) -> Any:
        if isinstance(node, str):
            return REFERENCE.sub(lambda match: lookup(match.group(1), here), node)
        if isinstance(node, dict):
            return {name: resolved(item, (*here, name)) for name, item in node.items()}
        if isinstance(node, list):
            return [resolved(item, (*here, index)) for index, item in enumerate(node)]
        return node

    def lookup(name: str, here: tuple[str | int, ...]) -> str:
        if name not in env:
            raise RunnerError(
                f"{root}: {render(here)}: the variable {name} is not set in the container: "
                "pass it in env_vars"
            )
        try:
            env[name].encode()
        except UnicodeEncodeError:
            raise RunnerError(
                f"{root}: {render(here)}: the variable {name} is not UTF-8 text"
            ) from None
        return env[name]

    return resolved(value, ())
