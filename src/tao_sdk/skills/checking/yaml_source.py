"""Flaws that are visible only in the text of a YAML file: a parser swallows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tao_sdk.plain_data import yaml_loader
from tao_sdk.skills.checking.problems import Finding, problem

__all__ = ["check_yaml_text"]

_HASH_WORD = re.compile(r"[ \t]+(#[^\s#]\S*)")


def check_yaml_text(text: str, file: str) -> Iterator[Finding]:
    """Keys given twice, and plain values that a ` #` cuts short."""
    import yaml

    root = yaml.compose(text, Loader=yaml_loader())
    if root is not None:
        yield from _walk(root, text, file, "")


def _walk(node: Any, text: str, file: str, key: str) -> Iterator[Finding]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for name_node, value_node in node.value:
            name = str(name_node.value)
            below = f"{key}.{name}" if key else name
            if name in seen:
                line = name_node.start_mark.line + 1
                yield problem(file, below, f"is given twice, the second time in line {line}")
            seen.add(name)
            yield from _walk(value_node, text, file, below)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, text, file, f"{key}[{index}]")
    elif isinstance(node, yaml.ScalarNode) and not node.style:
        # A comment has a space after its sign; `#SBATCH` was meant as text.
        cut = _HASH_WORD.match(text, node.end_mark.index)
        if cut and node.value:
            line = node.start_mark.line + 1
            yield problem(
                file, key, f"is cut short before {cut[1]!r} in line {line}: put it in quotes"
            )
