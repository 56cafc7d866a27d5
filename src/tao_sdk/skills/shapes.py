"""What must be a list, a mapping or text in the files of a bank, said once for every reader.

A shape is `TEXT`, `LIST` or `MAPPING`; `[shape]`, a list of such; or a mapping from keys to shapes,
in which `*` stands for every other key and a key with `!` must be there. Null is as good as a key
that is not there. What no shape mentions may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = [
    "AUTOML_SUPPORT",
    "METADATA",
    "PLATFORMS",
    "SCHEMA",
    "SCHEMAS_MANIFEST",
    "SCHEMA_MANIFEST",
    "misshapen",
]

TEXT, LIST, MAPPING = "text", "a list", "a mapping"
_TYPES = {TEXT: str, LIST: list, MAPPING: dict}

_TEXTS = [TEXT]
_MAPPINGS = {"*": MAPPING}
_ACTION = {
    "inputs": _MAPPINGS,
    "outputs": _MAPPINGS,
    "args": MAPPING,
    "defaults": MAPPING,
    "upload_excludes": _TEXTS,
}
_DATA_SOURCE = {"path_from_format": MAPPING, "mapping": _MAPPINGS}
METADATA = {
    "network_arch": TEXT,
    "aliases": _TEXTS,
    "actions": {"*": _ACTION},
    "data_sources": {"*": {"*": _DATA_SOURCE}},
    "spec_params": _MAPPINGS,
    "spec_shorthand_keys": {"*": TEXT},
    "spec_templates": MAPPING,
    "key_defaults": MAPPING,
    "notes": LIST,
    "required_credentials": LIST,
    "optional_credentials": LIST,
}
"""`skill_info.yaml` and `config.json`."""

_CREDENTIALS = [{"name!": TEXT, "only_when": TEXT, "description": TEXT, "how_to_get": TEXT}]
PLATFORMS = {
    "credential_definitions": {"*": {"description": TEXT, "how_to_get": TEXT}},
    "platforms!": [
        {
            "name!": TEXT,
            "aliases": _TEXTS,
            "required_credentials": _CREDENTIALS,
            "optional_credentials": _CREDENTIALS,
            "credential_groups": [
                {"name!": TEXT, "require_one_of!": _TEXTS, "preferred": TEXT},
            ],
            "storage": MAPPING,
            "resource_defaults": MAPPING,
            "dataset_examples": LIST,
            "preflight_checks": LIST,
        }
    ],
}
SCHEMAS_MANIFEST = {"models": {"*": {"actions": _TEXTS, "failures": MAPPING, "network_arch": TEXT}}}
SCHEMA_MANIFEST = {
    "network_arch": TEXT,
    "actions": {"*": {"path": TEXT, "spec_template": TEXT, "automl_default_parameters": _TEXTS}},
}
AUTOML_SUPPORT = {
    "supported": [
        {"model!": TEXT, "train_spec_template": TEXT, "automl_default_parameters": _TEXTS}
    ]
}


def _schema_node(node: Any, key: str) -> Iterator[tuple[str, str]]:
    """Sections are nodes as well; lists among the properties are the bookkeeping of generators."""
    yield from misshapen(node, _NODE, key)
    properties = node.get("properties") if isinstance(node, dict) else None
    for name, child in properties.items() if isinstance(properties, dict) else ():
        if isinstance(child, dict):
            yield from _schema_node(child, _join(_join(key, "properties"), name))


_NODE = {
    "properties": MAPPING,
    "required": _TEXTS,
    "type": TEXT,
    "enum": LIST,
    "pattern": TEXT,
    "anyOf": [MAPPING],
    "math_cond": TEXT,
    "depends_on": TEXT,
}


def _schema(schema: Any, key: str) -> Iterator[tuple[str, str]]:
    yield from misshapen(schema, {"default": MAPPING}, key)
    yield from _schema_node(schema, key)


SCHEMA: Callable[[Any, str], Iterator[tuple[str, str]]] = _schema


def misshapen(value: Any, shape: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Keys whose value has another shape, each with what it must be."""
    if value is None:
        return
    if callable(shape):
        yield from shape(value, key)
        return
    wanted = shape if isinstance(shape, str) else LIST if isinstance(shape, list) else MAPPING
    if not isinstance(value, _TYPES[wanted]):
        yield key, f"must be {wanted}, not {_shortened(value)}"
    elif isinstance(shape, list):
        for index, item in enumerate(value):
            here = f"{key}[{index}]"
            if item is None:
                yield here, "is empty"
            yield from misshapen(item, shape[0], here)
    elif isinstance(shape, Mapping):
        yield from _misshapen_keys(value, shape, key)


def _misshapen_keys(
    value: Mapping[str, Any], shape: Mapping[str, Any], key: str
) -> Iterator[tuple[str, str]]:
    shapes = {name.removesuffix("!"): below for name, below in shape.items()}
    for name in shape:
        if name.endswith("!") and value.get(name.removesuffix("!")) in (None, "", []):
            yield _join(key, name.removesuffix("!")), "is missing"
    for name, item in value.items():
        below = shapes.get(name, shapes.get("*"))
        if below is not None:
            yield from misshapen(item, below, _join(key, name))


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
