"""Which files and folders are checkpoints, and where in the training they stand.

A position (epoch, step) is read from the path part nearest to the weights: the file's own name
first, then its parents upwards, never beyond the experiment's folder. Whether a checkpoint is a
"best" or "latest" one is judged on its own name alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    AnyPath = str | os.PathLike[str]

# A program exported for inference: nothing can go on training from it.
DEPLOYMENT_EXTENSIONS = (".engine", ".onnx", ".trt")
# Bare weights: a trainer that saves them keeps the rest of its state beside them.
WEIGHT_EXTENSIONS = (".safetensors", ".bin")
CHECKPOINT_FILE_EXTENSIONS: tuple[str, ...] = (
    ".pth",
    ".pth.tar",
    ".tlt",
    ".hdf5",
    ".pt",
    ".ckpt",
    *WEIGHT_EXTENSIONS,
    *DEPLOYMENT_EXTENSIONS,
)
_MODEL_CONFIGS = frozenset({"config.json", "adapter_config.json"})
_PRUNED_FOLDERS = frozenset({"inputs", "ptm", "__pycache__", ".tao"})

_EPOCH = re.compile(r"(?:^|[_.\-])(?:epoch|ep|model[_-]best)[_=-]?(\d+)", re.IGNORECASE)
_STEP = re.compile(
    # Hugging Face's trainer numbers its `checkpoint-500` folders by step.
    r"(?:(?:^|[_.\-])(?:step|iteration|iter)[_=-]?|^checkpoint-(?=\d+$))(\d+)",
    re.IGNORECASE,
)
# A folder is named for a position when the name ends with one: `epoch_3`, `global_step100`, but
# not `epoch_100_sweep`, which only groups runs.
_NAMED_FOR_POSITION = re.compile(
    r"(?:.*[_.\-])?(?:epoch|ep|step|iteration|iter|checkpoint-)[_=-]?\d+", re.IGNORECASE
)
# One shard or one rank's share of a checkpoint: only the folder that holds them all can be loaded.
# (A bare `rank_16` is no share: adapters carry their LoRA rank in the name.)
SHARE = re.compile(
    r".*-\d+-of-\d+\.\w+"
    r"|.*(?:^|_)[mptd]p_rank_\d+.*"
    r"|(?:model|optim|optimizer|scheduler|extra_info|extra_state)(?:_world_size_\d+)?_rank_\d+\.\w+"
    r"|.*\.distcp",
    re.IGNORECASE,
)
# Files that trainers write beside the weights under the same extensions.
_COMPANION = re.compile(
    r"(?:optimizer|scheduler|scaler|sampler|rng_state|random_states|training_args|cal|calibration)"
    r"(?:[_.-].*)?",
    re.IGNORECASE,
)
_LATEST = re.compile(r"latest|(?<![a-z])last(?![a-z])", re.IGNORECASE)
_BEST = re.compile(r"best", re.IGNORECASE)
# Self-distillation saves three networks: the pair to train on, and each of the two, to use.
_HALF_OF_A_PAIR = re.compile(r"teacher|student", re.IGNORECASE)


# -- what a path says


def checkpoint_epoch(path: AnyPath, *, within: AnyPath | None = None) -> int | None:
    """The epoch that the path names, or None.

    `within` is the experiment's folder: neither it nor anything above it has a say. A file whose
    whole name is a number counts as that epoch.
    """
    parts = _parts_nearest_first(path, within)
    if not parts:
        return None
    own_stem = _stem(parts[0])
    named = _last_number(_EPOCH, parts[0])
    if named is None and own_stem != parts[0] and own_stem.isdecimal():
        return int(own_stem)
    return named if named is not None else _nearest_number(_EPOCH, parts[1:])


def checkpoint_step(path: AnyPath, *, within: AnyPath | None = None) -> int | None:
    """The step (iteration) that the path names, or None; see `checkpoint_epoch`."""
    return _nearest_number(_STEP, _parts_nearest_first(path, within))


def is_checkpoint_file_name(path: AnyPath) -> bool:
    """Whether a file of this name can be a whole checkpoint: not a shard, not optimizer state."""
    name = own_name(path)
    stem = _stem(name)
    return stem != name and not SHARE.fullmatch(name) and not _COMPANION.fullmatch(stem)


def is_latest(path: AnyPath) -> bool:
    return _LATEST.search(own_name(path)) is not None


def is_best(path: AnyPath) -> bool:
    return _BEST.search(own_name(path)) is not None


def is_half_of_a_pair(path: AnyPath) -> bool:
    """Whether this is the teacher or the student alone, from which training cannot go on."""
    return _HALF_OF_A_PAIR.search(own_name(path)) is not None


def has_checkpoint_extension(path: AnyPath) -> bool:
    """Whether the name ends as checkpoints do, be it a whole one, a share or a companion."""
    name = own_name(path)
    return _stem(name) != name


def own_name(path: AnyPath) -> str:
    return str(path).rstrip("/").rpartition("/")[2]


def _stem(name: str) -> str:
    """The name without its checkpoint extension; unchanged when it has none."""
    lowered = name.lower()
    endings = [end for end in CHECKPOINT_FILE_EXTENSIONS if lowered.endswith(end)]
    return name[: -len(max(endings, key=len))] if endings else name


def _parts_nearest_first(path: AnyPath, within: AnyPath | None) -> list[str]:
    parts = [part for part in str(path).split("/") if part]
    if within is not None:
        root = [part for part in str(within).split("/") if part and part != "."]
        if parts[: len(root)] == root:
            parts = parts[len(root) :]
    return parts[::-1]


def _last_number(pattern: re.Pattern[str], name: str) -> int | None:
    # Within one name the last position is the most specific: `epoch_2_of_sweep_epoch_7` is 7.
    numbers = pattern.findall(_stem(name))
    return int(numbers[-1]) if numbers else None


def _nearest_number(pattern: re.Pattern[str], parts: Iterable[str]) -> int | None:
    found = (_last_number(pattern, part) for part in parts)
    return next((number for number in found if number is not None), None)


# -- finding them


def checkpoints_among(sizes: Mapping[str, int]) -> Iterator[tuple[str, bool]]:
    """(path, whether it is a folder) of every checkpoint among files, in a fixed order.

    `sizes` has every file below a folder by its relative path; "" stands for that folder, which is
    a checkpoint if it holds a model's shards or a model with its configuration. A folder inside
    another of the same position (`checkpoint-100/global_step100`) is a part of it.
    """
    folders: dict[str, list[str]] = {}
    for path, size in sizes.items():
        folder, _, name = path.rpartition("/")
        if size and not _PRUNED_FOLDERS.intersection(folder.split("/")):
            folders.setdefault(folder, []).append(name)
            for parent in _parents(folder):
                folders.setdefault(parent, [])
    # Position of each folder that counts as a checkpoint, to recognise the parts inside it.
    positions: dict[str, tuple[int | None, int | None]] = {}
    for folder in sorted(folders, key=lambda path: path.split("/") if path else []):
        names = folders[folder]
        if _is_directory_checkpoint(own_name(folder), names):
            position = (checkpoint_epoch(folder), checkpoint_step(folder))
            if not any(positions.get(parent) == position for parent in _parents(folder)):
                yield folder, True
            if position != (None, None):
                positions[folder] = position
        for name in sorted(names):
            if is_checkpoint_file_name(name):
                yield f"{folder}/{name}".lstrip("/"), False


def file_stats(
    root: AnyPath, onerror: Callable[[OSError], None]
) -> Iterator[tuple[str, os.stat_result]]:
    """Every file below a folder that may have to do with checkpoints, by its relative path."""
    for folder, subfolders, names in os.walk(root, onerror=onerror):
        subfolders[:] = set(subfolders) - _PRUNED_FOLDERS
        for name in names:
            path = os.path.join(folder, name)
            try:
                yield os.path.relpath(path, root), os.stat(path)
            except FileNotFoundError:
                continue  # a dangling link, or deleted since it was listed


def _parents(folder: str) -> Iterator[str]:
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _is_directory_checkpoint(folder_name: str, filled: Iterable[str]) -> bool:
    if any(SHARE.fullmatch(name) for name in filled):
        return True
    weights = (name for name in filled if name.endswith(WEIGHT_EXTENSIONS))
    if _MODEL_CONFIGS.intersection(filled) and any(map(is_checkpoint_file_name, weights)):
        return True
    return (
        has_checkpoint_extension(folder_name)
        or _NAMED_FOR_POSITION.fullmatch(folder_name) is not None
    )
