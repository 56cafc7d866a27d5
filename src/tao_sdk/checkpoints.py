"""Which files and folders are checkpoints, where in the training they stand, and which one to use.

A position (epoch, step) is read from the path part nearest to the weights: the file's own name
first, then its parents upwards, never beyond the experiment's folder. Whether a checkpoint is a
"best" or "latest" one is judged on its own name alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "CHECKPOINT_FILE_EXTENSIONS",
    "CheckpointCandidate",
    "build_checkpoint_candidate",
    "checkpoint_epoch",
    "checkpoint_step",
    "get_checkpoint_path",
    "is_checkpoint_file_name",
    "iter_local_checkpoint_candidates",
    "select_checkpoint_path",
]

CHECKPOINT_FILE_EXTENSIONS: tuple[str, ...] = (
    ".pth",
    ".pth.tar",
    ".tlt",
    ".hdf5",
    ".pt",
    ".ckpt",
    ".safetensors",
    ".bin",
    ".engine",
    ".onnx",
    ".trt",
)

# A program exported for inference: nothing can go on training from it.
_DEPLOYMENT_EXTENSIONS = (".engine", ".onnx", ".trt")
_WEIGHT_EXTENSIONS = (".safetensors", ".bin")
_MODEL_CONFIGS = frozenset({"config.json", "adapter_config.json"})
_PRUNED_FOLDERS = frozenset({"inputs", "ptm", "__pycache__"})

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
_SHARE = re.compile(
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

_EVALUATING_ACTIONS = frozenset({"eval", "evaluate", "inference", "infer", "export", "best"})
_TRAINING_ACTIONS = frozenset({"resume", "train"})


@dataclass(frozen=True)
class CheckpointCandidate:
    """A file or folder that may be chosen, and what its path says about it."""

    path: str
    epoch: int | None = None
    step: int | None = None
    is_dir: bool = False
    is_latest: bool = False
    is_best: bool = False
    mtime: float = 0.0


def checkpoint_epoch(path: str | Path, *, within: str | Path | None = None) -> int | None:
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


def checkpoint_step(path: str | Path, *, within: str | Path | None = None) -> int | None:
    """The step (iteration) that the path names, or None; see `checkpoint_epoch`."""
    return _nearest_number(_STEP, _parts_nearest_first(path, within))


def is_checkpoint_file_name(path: str | Path) -> bool:
    """Whether a file of this name can be a whole checkpoint: not a shard, not optimizer state."""
    name = _name(path)
    stem = _stem(name)
    return stem != name and not _SHARE.fullmatch(name) and not _COMPANION.fullmatch(stem)


def build_checkpoint_candidate(
    path: str | Path,
    *,
    is_dir: bool | None = None,
    mtime: float | None = None,
    within: str | Path | None = None,
) -> CheckpointCandidate:
    """Describe a checkpoint by its path; what is not given is asked of the local file system."""
    text = str(path)
    local = Path(text)
    if is_dir is None:
        is_dir = text.endswith("/") or local.is_dir()
    if mtime is None:
        mtime = local.stat().st_mtime if local.exists() else 0.0
    name = _name(text)
    return CheckpointCandidate(
        path=text,
        epoch=checkpoint_epoch(text, within=within),
        step=checkpoint_step(text, within=within),
        is_dir=is_dir,
        is_latest=_LATEST.search(name) is not None,
        is_best=_BEST.search(name) is not None,
        mtime=mtime,
    )


def iter_local_checkpoint_candidates(
    directory: str | Path, *, include_dirs: bool = True
) -> Iterator[CheckpointCandidate]:
    """Every checkpoint below a folder, in a fixed order; nothing when there is no such folder.

    The folder itself is one if it holds a model's shards or a model with its configuration. A
    folder inside another of the same position (`checkpoint-100/global_step100`) is a part of it.
    """
    root = Path(directory)
    # Position of each folder that counts as a checkpoint, to recognise the parts inside it.
    positions: dict[Path, tuple[int | None, int | None]] = {}
    for folder, subfolders, names in os.walk(root, onerror=_ignore_if_vanished):
        subfolders[:] = sorted(set(subfolders) - _PRUNED_FOLDERS)
        here = Path(folder)
        sizes = _file_sizes(here, names)
        if include_dirs and _is_directory_checkpoint(here, sizes, is_root=here == root):
            candidate = build_checkpoint_candidate(here, is_dir=True, within=root)
            position = (candidate.epoch, candidate.step)
            if not any(positions.get(parent) == position for parent in here.parents):
                yield candidate
            if position != (None, None):
                positions[here] = position
        for name in sorted(sizes):
            if sizes[name] and is_checkpoint_file_name(name):
                yield build_checkpoint_candidate(here / name, is_dir=False, within=root)


def select_checkpoint_path(
    candidates: Iterable[CheckpointCandidate],
    *,
    model_name: str | None = None,
    epoch: int | None = None,
    step: int | None = None,
    action: str = "resume",
    prefer_directory: bool = False,
    allow_latest: bool = False,
) -> str | None:
    """The path that serves `action` best, or None.

    A requested `epoch` N also accepts N-1, for trainers that count from zero, and a requested
    `step` must match; `allow_latest` admits a checkpoint named "latest" when nothing does.
    """
    action = action.lower()
    ranked: list[tuple[tuple[float, ...], str]] = []
    for candidate in candidates:
        epoch_rank = _epoch_rank(candidate, epoch)
        step_rank = _step_rank(candidate, step)
        if epoch_rank is None or step_rank is None:
            if not (allow_latest and candidate.is_latest):
                continue
            epoch_rank = step_rank = -1
        rank = (
            epoch_rank,
            step_rank,
            _action_rank(candidate, action, model_name),
            _kind_rank(candidate, prefer_directory),
            _location_rank(candidate),
            not candidate.is_latest,
            _progress(candidate),
            candidate.mtime,
        )
        ranked.append((rank, candidate.path))
    return max(ranked)[1] if ranked else None


def get_checkpoint_path(
    *,
    model_name: str | None,
    experiment_dir: str | Path,
    epoch: int | None = None,
    step: int | None = None,
    action: str = "resume",
    prefer_directory: bool = False,
    allow_latest: bool = False,
) -> str | None:
    """`select_checkpoint_path` over everything below an experiment's folder."""
    return select_checkpoint_path(
        iter_local_checkpoint_candidates(experiment_dir),
        model_name=model_name,
        epoch=epoch,
        step=step,
        action=action,
        prefer_directory=prefer_directory,
        allow_latest=allow_latest,
    )


# -- reading paths


def _name(path: str | Path) -> str:
    return str(path).rstrip("/").rpartition("/")[2]


def _stem(name: str) -> str:
    """The name without its checkpoint extension; unchanged when it has none."""
    lowered = name.lower()
    endings = [end for end in CHECKPOINT_FILE_EXTENSIONS if lowered.endswith(end)]
    return name[: -len(max(endings, key=len))] if endings else name


def _parts_nearest_first(path: str | Path, within: str | Path | None) -> list[str]:
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


# -- looking at folders


def _ignore_if_vanished(error: OSError) -> None:
    # A running trainer deletes old checkpoints under our hands; anything else is worth knowing.
    if not isinstance(error, FileNotFoundError):
        raise error


def _file_sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    sizes = {}
    for name in names:
        try:
            sizes[name] = (folder / name).stat().st_size
        except FileNotFoundError:
            continue  # a dangling link, or deleted since it was listed
    return sizes


def _is_directory_checkpoint(folder: Path, sizes: dict[str, int], *, is_root: bool) -> bool:
    filled = {name for name, size in sizes.items() if size}
    if any(_SHARE.fullmatch(name) for name in filled):
        return True
    weights = (name for name in filled if name.endswith(_WEIGHT_EXTENSIONS))
    if filled & _MODEL_CONFIGS and any(map(is_checkpoint_file_name, weights)):
        return True
    name = folder.name
    named = _stem(name) != name or _NAMED_FOR_POSITION.fullmatch(name) is not None
    return named and not is_root and (bool(filled) or _holds_data(folder))


def _holds_data(folder: Path) -> bool:
    return any(
        size
        for path, _, names in os.walk(folder, onerror=_ignore_if_vanished)
        for size in _file_sizes(Path(path), names).values()
    )


# -- ranking


def _epoch_rank(candidate: CheckpointCandidate, wanted: int | None) -> int | None:
    """How well the epoch fits; None when it does not."""
    if wanted is None:
        return 0
    if candidate.epoch == wanted:
        return 3
    return 2 if candidate.epoch is not None and candidate.epoch == wanted - 1 else None


def _step_rank(candidate: CheckpointCandidate, wanted: int | None) -> int | None:
    if wanted is None:
        return 0
    return 3 if candidate.step == wanted else None


def _action_rank(candidate: CheckpointCandidate, action: str, model_name: str | None) -> int:
    name = _name(candidate.path).lower()
    evaluating = action in _EVALUATING_ACTIONS
    training = action in _TRAINING_ACTIONS
    rank = 4 if evaluating and candidate.is_best else 0
    if training and name.endswith(_DEPLOYMENT_EXTENSIONS):
        rank -= 4
    if (model_name or "").lower() == "nvdinov2":
        # Self-distillation saves three networks: the pair to train on, and the student to use.
        if training and "model_epoch" in name:
            rank += 3
        elif training and ("teacher" in name or "student" in name):
            rank -= 3
        elif evaluating and "student_epoch" in name:
            rank += 3
    return rank


def _kind_rank(candidate: CheckpointCandidate, prefer_directory: bool) -> int:
    if prefer_directory:
        return 4 if candidate.is_dir else 0
    return 2 if candidate.is_dir else 4


def _location_rank(candidate: CheckpointCandidate) -> int:
    if "/checkpoints/" in candidate.path:
        return 2
    return 1 if "/safetensors/" in candidate.path else 0


def _progress(candidate: CheckpointCandidate) -> int:
    if candidate.step is not None:
        return candidate.step
    return candidate.epoch if candidate.epoch is not None else -1
