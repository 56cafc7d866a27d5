"""Values that metadata asks us to work out (`spec_params`): the parent's model, where to resume.

A key maps to the name of a rule; a name that is no rule is the value itself. Files that an action
creates need no value: they are declared as outputs, and the runner names and delivers them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KNOWN_RULES", "Lineage", "infer_values", "inferred_outputs"]

_PARENT = ("parent_model", "parent_model_folder", "parent_model_or_ptm")
_PRETRAINED = ("ptm", "ptm_if_no_resume_model")
_CREATED = "create_"
KNOWN_RULES = frozenset({*_PARENT, *_PRETRAINED, "resume_model", "output_dir", "key"})
_ENGINE_SUFFIXES = (".engine", ".trt", ".plan")


@dataclass(frozen=True)
class Lineage:
    """Where a job comes from and goes to, as far as the caller says."""

    parent: str = ""
    """The model of the action before: a file, or its folder."""
    resume: str = ""
    """The checkpoint of an earlier attempt."""
    pretrained: str = ""
    results_dir: str = ""
    """Only to override where the platform would put results."""
    encryption_key: str = ""


@dataclass
class Inferred:
    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def infer_values(spec_params: Mapping[str, Any], lineage: Lineage) -> Inferred:
    """The values that can be worked out; a key that cannot be stays as the template has it."""
    inferred = Inferred()
    takers = _parent_keys(spec_params, lineage.parent)
    for key, rule in spec_params.items():
        if isinstance(rule, Mapping):
            _downloaded(key, rule, lineage, inferred)
        elif not isinstance(rule, str):
            inferred.values[key] = rule
        elif rule in _PARENT and key not in takers:
            continue
        elif rule in KNOWN_RULES:
            if value := _by_rule(rule, lineage):
                inferred.values[key] = value
        elif not rule.startswith(_CREATED):
            inferred.values[key] = rule
    return inferred


def inferred_outputs(spec_params: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What the action writes according to the rules, declared as outputs are."""
    return {
        key: {"type": "folder" if rule == "output_dir" else "file"}
        for key, rule in spec_params.items()
        if isinstance(rule, str) and (rule == "output_dir" or rule.startswith(_CREATED))
    }


def _by_rule(rule: str, lineage: Lineage) -> str:
    if rule == "parent_model_folder":
        return _folder_of(lineage.parent)
    return {
        "parent_model": lineage.parent,
        "parent_model_or_ptm": lineage.parent or lineage.pretrained,
        "resume_model": lineage.resume,
        "ptm": lineage.pretrained,
        "ptm_if_no_resume_model": "" if lineage.resume else lineage.pretrained,
        "output_dir": lineage.results_dir,
        "key": lineage.encryption_key,
    }[rule]


def _parent_keys(spec_params: Mapping[str, Any], parent: str) -> set[str]:
    """Some actions take a checkpoint in one key or an engine in another: never both."""
    keys = {key for key, rule in spec_params.items() if isinstance(rule, str) and rule in _PARENT}
    engine_keys = {key for key in keys if "engine" in key.rpartition(".")[2]}
    if not engine_keys or engine_keys == keys:
        return keys
    return engine_keys if parent.endswith(_ENGINE_SUFFIXES) else keys - engine_keys


def _folder_of(model: str) -> str:
    """The folder itself, or that of a file; a file is known by its extension."""
    name = posixpath.basename(model.rstrip("/"))
    is_file = not model.endswith("/") and posixpath.splitext(name)[1]
    return posixpath.dirname(model) if is_file else model


def _downloaded(key: str, rule: Mapping[str, Any], lineage: Lineage, inferred: Inferred) -> None:
    """Weights on a web page: nothing here fetches them, so the user is told."""
    if lineage.pretrained and not lineage.resume:
        inferred.values[key] = lineage.pretrained
    elif not lineage.resume:
        inferred.notes.append(
            f"{key}: pretrained weights are at {rule.get('link')}; put them where the job can read "
            "them and give that path as pretrained=, or train without"
        )
