"""Root mode: from the root folders of datasets to the spec keys of an action.

A model's `data_sources` say which file below which root belongs into which key. Below a root in an
object store an archive is named as it is, because the runner unpacks what it stages. On a file
system nothing is staged: there the folder beside the archive is meant, which commands can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tao_sdk.runner.uris import scheme_of
from tao_sdk.skills.errors import MetadataError, MissingNameError, SpecError
from tao_sdk.skills.names import choices_for

__all__ = ["MappedDatasets", "Roots", "map_datasets", "sources_of"]

Roots = Mapping[str, "str | Sequence[str]"]
Exists = Callable[[str], bool]

_TOKEN = re.compile(r"\{(\w+)\}")
_ARCHIVE = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2|txz|zip)$")
_STORES = ("s3", "hf_dataset", "hf_model", "ngc")


@dataclass
class MappedDatasets:
    """What root mode found."""

    values: dict[str, Any] = field(default_factory=dict)
    """Spec key to value."""
    missing: dict[str, str] = field(default_factory=dict)
    """Spec keys that could not be filled, and what would."""
    choices: dict[str, list[str]] = field(default_factory=dict)
    """Spec keys for which more than one file would do; the first was taken."""


def sources_of(data_sources: Mapping[str, Any]) -> list[str]:
    """The roots that an action asks for."""
    return sorted({str(rule.get("source")) for rule in data_sources.values()})


def map_datasets(
    data_sources: Mapping[str, Any],
    roots: Roots,
    *,
    data_format: str = "",
    file_names: Mapping[str, str] | None = None,
    exists: Exists | None = None,
) -> MappedDatasets:
    """The spec keys of an action, from the roots of its datasets.

    `roots` maps a source (`train_datasets`, `eval_dataset`, ...) to one root or several;
    `file_names` fills tokens such as `{train_dataset_annotation}`; `exists` lets optional files and
    alternatives be chosen by what is there.
    """
    known = sources_of(data_sources)
    for source in roots:
        if source not in known:
            raise MissingNameError(
                f"this action takes no dataset {source!r}: {choices_for(source, known)}"
            )
    found = MappedDatasets()
    for key, rule in data_sources.items():
        _Mapper(key, rule, file_names or {}, data_format, exists, found).fill(roots)
    return found


@dataclass(frozen=True)
class _Mapper:
    """One spec key."""

    key: str
    rule: Mapping[str, Any]
    file_names: Mapping[str, str]
    data_format: str
    exists: Exists | None
    found: MappedDatasets

    def fill(self, all_roots: Roots) -> None:
        source = str(self.rule.get("source"))
        given = all_roots.get(source)
        roots = [given] if isinstance(given, str) else list(given or [])
        if not all(root.strip() for root in roots):
            raise SpecError(f"dataset_roots: {source}: a root is empty, which would mean /")
        if not roots:
            if not self.rule.get("optional"):
                self.found.missing[self.key] = f"the root of {source}"
            return
        many = bool(self.rule.get("list") or self.rule.get("multiple_sources"))
        if len(roots) > 1 and not many:
            raise SpecError(
                f"{self.key}: {source} takes one root, but {len(roots)} are given: "
                f"{', '.join(roots)}"
            )
        if "mapping" in self.rule:
            self.found.values[self.key] = [self._item(root) for root in roots]
            return
        values = [value for root in roots if (value := self._value(root, self.rule)) is not None]
        if values:
            self.found.values[self.key] = values if many else values[0]

    def _item(self, root: str) -> dict[str, str]:
        """An item of a list of datasets, field by field."""
        item = {}
        for name, rule in self.rule["mapping"].items():
            if "path" not in rule or (rule.get("optional") and self.exists is None):
                continue
            value = self._value(root, rule)
            if value is not None:
                item[name] = value
        return item

    def _value(self, root: str, rule: Mapping[str, Any]) -> str | None:
        names = [name for name in map(self._named, self._candidates(rule)) if name is not None]
        if not names:
            return None
        paths = [_path(root, name) for name in names]
        if self.exists is not None and (len(paths) > 1 or rule.get("optional")):
            there = [path for path in paths if self.exists(path)]
            if there or rule.get("optional"):
                return there[0] if there else None
        if len(paths) > 1:
            self.found.choices[self.key] = paths
        return paths[0]

    def _candidates(self, rule: Mapping[str, Any]) -> list[str]:
        if "path_from_format" not in rule:
            return [str(rule.get("path") or "")]
        by_format = rule["path_from_format"]
        names = by_format.get(self.data_format, by_format.get("*"))
        if names is None:
            raise MetadataError(
                f"data_sources: {self.key}: path_from_format has neither "
                f"{self.data_format!r} nor '*'"
            )
        return [names] if isinstance(names, str) else list(names)

    def _named(self, name: str) -> str | None:
        unknown = [token for token in _TOKEN.findall(name) if token not in self.file_names]
        if unknown:
            self.found.missing[self.key] = (
                f"the name of the file, as file_names={{{unknown[0]!r}: ...}}"
            )
            return None
        return _TOKEN.sub(lambda match: self.file_names[match[1]], name)


def _path(root: str, name: str) -> str:
    if not name:
        return root
    path = f"{root if root.endswith('/') else root + '/'}{name}"
    return path if scheme_of(root) in _STORES else _ARCHIVE.sub("", path)
