"""Data of a launch: roots and spec keys, examples that fit the platform, paths to be checked."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.runner.place_names import render
from tao_sdk.runner.uris import scheme_of
from tao_sdk.skills.datasets import map_datasets
from tao_sdk.skills.names import choices_for
from tao_sdk.skills.spec_values import is_unset, leaves

__all__ = [
    "data_keys",
    "direct_examples",
    "example_root",
    "file_tokens",
    "input_paths",
    "root_examples",
    "root_map",
    "root_name",
    "roots_by_source",
]

_INDEX = re.compile(r"\[(?:\d+|\*)\]")
_DATASET = re.compile(r"_?datasets?$")
_ROOT = "_root"
_MODELS = ("checkpoint", "model_path", "model_name", "onnx", "engine", "pretrained")
RootValue = str | Sequence[str]


def root_name(source: str) -> str:
    """What people call the root of a source: `train_datasets` is `train_root`."""
    return f"{_DATASET.sub('', source) or source}{_ROOT}"


def root_names(data_sources: Mapping[str, Any]) -> dict[str, str]:
    """The roots of an action, each with its source, in the order of the spec keys."""
    sources = [str(rule["source"]) for rule in data_sources.values() if rule]
    return {root_name(source): source for source in sources}


def roots_by_source(
    data_sources: Mapping[str, Any], given: Mapping[str, RootValue], where: str
) -> dict[str, RootValue]:
    """Roots under the names that the metadata has for them; `where` is the model and action."""
    known = root_names(data_sources)
    found: dict[str, RootValue] = {}
    for name, value in given.items():
        source = known.get(name, name)
        if source not in known.values():
            takes = choices_for(name, known) if known else "give the exact spec keys instead"
            raise ValidationError(f"{where} takes no {name}: {takes}")
        found[source] = value
    return found


def file_tokens(data_sources: Mapping[str, Any]) -> list[str]:
    """File names that the metadata leaves to the person, as `{train_annotation}`."""
    return list(dict.fromkeys(re.findall(r"\{(\w+)\}", str(list(data_sources.values())))))


# ---------------------------------------------------------------- examples


def root_examples(platform: Mapping[str, Any], network: str) -> list[str]:
    """Folders as this platform names them."""
    listed = [str(text) for text in platform.get("dataset_examples") or []]
    return [_named(text, network) for text in listed if "=" not in text]


def example_root(platform: Mapping[str, Any], network: str, root: str) -> str:
    """A root of this kind on this platform."""
    examples = root_examples(platform, network) or [f"/data/{network}/train"]
    folder = posixpath.dirname(examples[0].partition(" ")[0])
    return f"{folder}/{root.removesuffix(_ROOT)}"


def root_map(
    data_sources: Mapping[str, Any], root: str, data_format: str, *, in_store: bool
) -> dict[str, str]:
    """The spec keys that a root fills, as texts that begin with the root's name."""
    source = root_names(data_sources)[root]
    rules = {key: rule for key, rule in data_sources.items() if rule and rule["source"] == source}
    # An archive is named as it is in a store only: see `skills.datasets`.
    prefix = "s3://" if in_store else ""
    tokens = {token: f"<{token}>" for token in file_tokens(rules)}
    mapped = map_datasets(
        rules, {source: f"{prefix}{root}"}, data_format=data_format, file_names=tokens
    )
    return {
        place: str(value).removeprefix(prefix)
        for key, found in mapped.values.items()
        for place, value in _single_values(key, found)
    }


def direct_examples(
    keys: Mapping[str, Any],
    data_sources: Mapping[str, Any],
    platform: Mapping[str, Any],
    network: str,
    data_format: str,
) -> list[str]:
    """One exact path per spec key (with its declaration), as this platform names paths."""
    mapped: dict[str, str] = {}
    for root in root_names(data_sources):
        example = example_root(platform, network, root)
        in_store = example.startswith("s3://")
        for key, value in root_map(data_sources, root, data_format, in_store=in_store).items():
            mapped[key] = f"{example}{value.removeprefix(root)}"
    data = example_root(platform, network, "train_root")
    return [
        f"{key}={mapped.get(key) or _likely(key, str((options or {}).get('type')), data)}"
        for key, options in keys.items()
    ]


def _likely(key: str, kind: str, data: str) -> str:
    """A place for an input that no root fills: a model mostly, else a file or folder of data."""
    name = re.split(r"[.\]]", key)[-1]
    if any(word in key for word in _MODELS):
        return f"{posixpath.dirname(data)}/{'model' if kind == 'folder' else 'model.pth'}"
    if kind == "folder" or "dir" in name:
        return f"{data}/images"
    return f"{data}/{'annotations.json' if 'json' in name else name}"


def _named(text: str, network: str) -> str:
    return text.replace("<model>", network)


def _single_values(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """A list of datasets is shown by its first item."""
    for path, leaf in leaves(value):
        place = render(path)
        yield f"{key}{'.' if place and not place.startswith('[') else ''}{place}", str(leaf)


# ---------------------------------------------------------------- paths


def data_keys(data_sources: Mapping[str, Any]) -> list[str]:
    """The spec keys that hold data; of a list of datasets, its fields."""
    return [
        f"{key}[*].{name}" if name else key
        for key, rule in data_sources.items()
        for name in (rule or {}).get("mapping") or [""]
    ]


def input_paths(
    keys: Iterable[str], specs: Mapping[str, Any], args: Mapping[str, Any]
) -> dict[str, str]:
    """The paths and addresses that these keys of a spec (or arguments) hold, item by item.

    Other values (a model's short name, an example of the template) are not places.
    """
    wanted = {_INDEX.sub("[]", key) for key in keys}
    found = {}
    for path, value in leaves({**specs, **args}):
        if not isinstance(value, str) or is_unset(value):
            continue
        place = render(path)
        general = _INDEX.sub("[]", place)
        is_input = general in wanted or general.removesuffix("[]") in wanted
        if is_input and (value.startswith("/") or scheme_of(value)):
            found[place] = value
    return found
