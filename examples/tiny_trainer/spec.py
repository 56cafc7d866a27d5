"""The spec: its keys, types and defaults (the dataclasses), and reading it from a file.

Every action accepts the same spec, so one file can serve training and all that follows it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from .errors import SpecError


def _at_least(minimum: float, default: Any) -> Any:
    return field(default=default, metadata={"minimum": minimum})


def _one_of(*choices: str) -> Any:
    return field(default=choices[0], metadata={"choices": choices})


@dataclass(frozen=True)
class ModelSpec:
    hidden: tuple[int, ...] = _at_least(1, (64,))
    backend: str = _one_of("auto", "numpy", "torch")


@dataclass(frozen=True)
class DatasetSpec:
    path: str = ""
    num_samples: int = _at_least(50, 4000)
    image_size: int = _at_least(8, 12)
    seed: int = _at_least(0, 7)
    batch_size: int = _at_least(1, 64)


@dataclass(frozen=True)
class OptimSpec:
    lr: float = _at_least(0, 0.05)
    momentum: float = _at_least(0, 0.9)
    weight_decay: float = _at_least(0, 1e-4)


@dataclass(frozen=True)
class TrainSpec:
    num_epochs: int = _at_least(1, 5)
    checkpoint_interval: int = _at_least(1, 1)
    resume_training_checkpoint_path: str = ""
    optim: OptimSpec = OptimSpec()
    seed: int = _at_least(0, 1234)
    num_gpus: int = _at_least(0, 1)
    num_nodes: int = _at_least(1, 1)
    peer_timeout_seconds: float = _at_least(1, 120.0)
    epoch_seconds: float = _at_least(0, 0.0)
    fail_at_epoch: int | None = _at_least(1, None)
    fail_with: str = "exception"
    fail_rank: int | None = _at_least(0, None)


@dataclass(frozen=True)
class EvaluateSpec:
    checkpoint: str = ""


@dataclass(frozen=True)
class ExportSpec:
    checkpoint: str = ""
    output_file: str = "model.safetensors"


@dataclass(frozen=True)
class InferenceSpec:
    checkpoint: str = ""
    output_file: str = "predictions.csv"


@dataclass(frozen=True)
class Spec:
    results_dir: str = ""
    model: ModelSpec = ModelSpec()
    dataset: DatasetSpec = DatasetSpec()
    train: TrainSpec = TrainSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    export: ExportSpec = ExportSpec()
    inference: InferenceSpec = InferenceSpec()


FAILURES = ("exception", "oom", "segfault", "nan", "hang")
_KINDS: dict[Any, str] = {
    int: "a whole number",
    int | None: "a whole number or null",
    float: "a number",
    str: "a string",
    tuple[int, ...]: "a list of whole numbers",
}


def load_spec(path: Path, overrides: list[str], action: str) -> Spec:
    """Read and check a spec; raise one `SpecError` that lists every problem."""
    tree = _read_tree(path)
    for override in overrides:
        _apply_override(tree, override)
    problems: list[str] = []
    spec: Spec = _build(Spec, tree, "", problems)
    if not problems:
        problems.extend(_cross_checks(spec, action))
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise SpecError(f"Error in spec {path}:\n{lines}")
    return spec


def _read_tree(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"Cannot read spec {path}: {error}") from error
    tree = _parse_json(text, path) if path.suffix == ".json" else _parse_yaml(text, path)
    if tree is None:  # an empty file: all defaults
        return {}
    if not isinstance(tree, dict):
        raise SpecError(f"Error in spec {path}: expected a mapping of keys, got {_describe(tree)}")
    return tree


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SpecError(f"Spec {path} is not valid JSON: {error}") from error


def _parse_yaml(text: str, path: Path | str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise SpecError(
            f"Spec {path} is YAML and PyYAML is not installed: install it, or give a .json spec"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpecError(f"Spec {path} is not valid YAML: {error}") from error


def _apply_override(tree: dict[str, Any], override: str) -> None:
    """Put `train.num_epochs=3`, as Hydra writes it, into the tree."""
    key, equals, text = override.partition("=")
    *sections, name = key.split(".")
    if not equals or not all([*sections, name]):
        raise SpecError(f"Argument {override!r} is not of the form section.key=value")
    for section in sections:
        child = tree.setdefault(section, {})
        if not isinstance(child, dict):
            raise SpecError(f"Argument {override!r}: {section} is not a section of the spec")
        tree = child
    tree[name] = _parse_yaml(text, f"argument {override!r}")


def _build(section: type, tree: Mapping[Any, Any], prefix: str, problems: list[str]) -> Any:
    """Make a section's dataclass from the tree; note every problem instead of raising."""
    types = get_type_hints(section)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if key not in types:
            problems.append(f"{dotted}: no such key{_suggestion(str(key), prefix)}")
        elif is_dataclass(types[key]):
            if isinstance(value, Mapping):
                values[key] = _build(types[key], value, f"{dotted}.", problems)
            elif value is not None:
                problems.append(f"{dotted}: expected a mapping of keys, got {_describe(value)}")
        elif value is not None:  # null leaves the default, as an absent key does
            values[key] = _convert(value, types[key], dotted, problems)
    for entry in fields(section):
        if entry.name in values:
            problems.extend(_range_problems(values[entry.name], entry.metadata, prefix, entry.name))
    return section(**values)


def _convert(value: Any, wanted: Any, dotted: str, problems: list[str]) -> Any:
    if wanted is float and isinstance(value, str):
        value = _number_or_same(value)
    if not _fits(value, wanted):
        problems.append(f"{dotted}: expected {_KINDS[wanted]}, got {_describe(value)}")
        return None
    if wanted is float:
        return float(value)
    return tuple(value) if isinstance(value, list) else value


def _number_or_same(text: str) -> float | str:
    # PyYAML takes 1e-3 for a string (YAML 1.1 wants 1.0e-3), yet everybody writes it.
    try:
        return float(text)
    except ValueError:
        return text


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool):  # to Python a bool is an int, to a spec it is not
        return False
    if wanted == tuple[int, ...]:
        return isinstance(value, list) and all(_fits(item, int) for item in value)
    if wanted is float:
        return isinstance(value, (int, float))
    return isinstance(value, str if wanted is str else int)


def _range_problems(value: Any, limits: Mapping[str, Any], prefix: str, name: str) -> Iterator[str]:
    numbers = value if isinstance(value, tuple) else (value,)
    minimum = limits.get("minimum")
    # `not >=` instead of `<`: it catches NaN too.
    if minimum is not None and any(n is not None and not n >= minimum for n in numbers):
        yield f"{prefix}{name}: must be at least {minimum}, got {_describe(value)}"
    choices = limits.get("choices")
    if choices and value is not None and value not in choices:
        yield f"{prefix}{name}: must be one of {', '.join(choices)}, got {value!r}"


def _cross_checks(spec: Spec, action: str) -> Iterator[str]:
    if action in ("evaluate", "export", "inference") and not getattr(spec, action).checkpoint:
        yield f"{action}.checkpoint: required, give the checkpoint file of a training run"
    if action == "dataset" and spec.dataset.path:
        yield "dataset.path: leave it empty here, the action generates a new data set"
    if not spec.export.output_file.endswith(".safetensors"):
        yield f"export.output_file: must end in .safetensors, got {spec.export.output_file!r}"
    failure = spec.train.fail_with
    code = failure.removeprefix("exit:")
    exits = code != failure and code.isdecimal() and int(code) <= 255
    if not exits and failure not in FAILURES:
        known = ", ".join((*FAILURES, "exit:<n>"))
        yield f"train.fail_with: must be one of {known}, got {failure!r}"


def _suggestion(key: str, prefix: str) -> str:
    known = list(_dotted_keys(Spec, ""))
    if not prefix and "." in key and key in known:
        section, _, rest = key.partition(".")
        return f"; write it nested, as `{section}:` with `{rest.replace('.', ': ')}:` below it"
    siblings = [k.removeprefix(prefix) for k in known if k.rpartition(".")[0] == prefix.rstrip(".")]
    closest = [prefix + k for k in difflib.get_close_matches(key, siblings, n=1)]
    # The right name in the wrong section: num_epochs at the top, say.
    elsewhere = [k for k in known if k.rpartition(".")[2] == key]
    for candidate in (*closest, *elsewhere):
        return f"; did you mean {candidate}?"
    return f"; the keys here are {', '.join(siblings)}"


def _dotted_keys(section: type, prefix: str) -> Iterator[str]:
    for key, kind in get_type_hints(section).items():
        yield prefix + key
        if is_dataclass(kind):
            yield from _dotted_keys(kind, f"{prefix}{key}.")  # type: ignore[arg-type]


def _describe(value: Any) -> str:
    kinds = {bool: "boolean", str: "string", list: "list", tuple: "list", dict: "mapping"}
    kind = kinds.get(type(value))
    shown = list(value) if isinstance(value, tuple) else value
    return f"{shown!r} ({kind})" if kind else repr(shown)
