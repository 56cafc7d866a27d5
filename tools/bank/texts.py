"""How the files of the bank are written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

_INDENT = "  "
_WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """YAML whose lists are indented below their key, and without anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's interface
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's interface
        return True


def yaml_text(content: Mapping[str, Any], comment: str) -> str:
    body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return f"# {comment}\n{body}"


def json_text(content: Any) -> str:
    """Strict JSON; what fits is on one line, so that a parameter is one line of a diff."""
    return f"{_json(content, '')}\n"


def _json(value: Any, indent: str) -> str:
    short = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, (dict, list)) or len(indent) + len(short) <= _WIDTH:
        return short
    below = indent + _INDENT
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_json(item, below)}" for key, item in value.items()]
        return "{\n" + ",\n".join(below + item for item in items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(below + _json(item, below) for item in value) + f"\n{indent}]"
