"""The checkpoints of an experiment, and which one to use.

What a checkpoint is and how its path is read is said in `tao_sdk.runner.checkpoint_files`, because
the runner has to know it inside the container.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tao_sdk.runner.checkpoint_files import (
    CHECKPOINT_FILE_EXTENSIONS,
    DEPLOYMENT_EXTENSIONS,
    checkpoint_epoch,
    checkpoint_step,
    checkpoints_among,
    file_stats,
    is_best,
    is_checkpoint_file_name,
    is_half_of_a_pair,
    is_latest,
    own_name,
)

__all__ = [
    "CHECKPOINT_FILE_EXTENSIONS",
    "CheckpointCandidate",
    "build_checkpoint_candidate",
    "checkpoint_epoch",
    "checkpoint_step",
    "get_checkpoint_path",
    "is_checkpoint_file_name",
    "iter_local_checkpoint_candidates",
    "remote_checkpoints",
    "select_checkpoint_path",
]

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
    return CheckpointCandidate(
        path=text,
        epoch=checkpoint_epoch(text, within=within),
        step=checkpoint_step(text, within=within),
        is_dir=is_dir,
        is_latest=is_latest(text),
        is_best=is_best(text),
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
    sizes = {path: stat.st_size for path, stat in file_stats(root, _ignore_if_vanished)}
    for path, is_dir in checkpoints_among(sizes):
        if include_dirs or not is_dir:
            yield build_checkpoint_candidate(root / path, is_dir=is_dir, within=root)


def remote_checkpoints(root: str, sizes: Mapping[str, int]) -> list[str]:
    """URIs of the checkpoints among everything stored below `root`, earliest position first."""

    def position(path: str) -> tuple[int, int, str]:
        epoch, step = checkpoint_epoch(path), checkpoint_step(path)
        return -1 if epoch is None else epoch, -1 if step is None else step, path

    found = sorted((path for path, _ in checkpoints_among(sizes)), key=position)
    return [f"{root.rstrip('/')}/{path}".rstrip("/") for path in found]


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


def _ignore_if_vanished(error: OSError) -> None:
    # A running trainer deletes old checkpoints under our hands; anything else is worth knowing.
    if not isinstance(error, FileNotFoundError):
        raise error


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
    name = own_name(candidate.path).lower()
    evaluating = action in _EVALUATING_ACTIONS
    training = action in _TRAINING_ACTIONS
    rank = 4 if evaluating and candidate.is_best else 0
    if training and name.endswith(DEPLOYMENT_EXTENSIONS):
        rank -= 4
    if (model_name or "").lower() == "nvdinov2":
        if training and "model_epoch" in name:
            rank += 3
        elif training and is_half_of_a_pair(name):
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
