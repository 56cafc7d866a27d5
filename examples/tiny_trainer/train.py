"""The train action."""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from . import checkpoint, data
from .checkpoint import TrainState
from .data import DataSet
from .distributed import Group, Placement, join
from .errors import CheckpointError, InterruptedBySignal, TrainerError
from .failures import fail_if_due
from .model import (
    BatchGradients,
    LossAndGradients,
    Weights,
    choose_backend,
    initial_weights,
    layer_sizes,
    mean_loss_and_accuracy,
)
from .spec import OptimSpec, Spec
from .status import StatusLog
from .stopping import StopRequests

_RESUME_KEY = "train.resume_training_checkpoint_path"
_GLANCE_SECONDS = 0.1  # how often a pause looks for a stop request


def train(spec: Spec, folder: Path, placement: Placement, stop: StopRequests) -> None:
    """Train, or go on training, until `train.num_epochs` whole epochs are done."""
    backend, loss_and_gradients = choose_backend(spec.model.backend, spec.train.num_gpus)
    with StatusLog(folder, "train", silent=placement.rank > 0) as status:
        data_set = data.load(spec.dataset)
        digest = data_set.digest()
        timeout, fingerprint = spec.train.peer_timeout_seconds, _fingerprint(spec, digest)
        with join(placement, timeout, fingerprint) as group:
            start = group.broadcast(
                lambda: checkpoint.encode(_starting_state(spec, data_set, digest))
            )
            state = checkpoint.decode(start)
            _announce(spec, data_set, state, group, f"{backend}; results in {folder}")
            stop.defer()
            _Training(spec, data_set, state, folder, group, stop, status, loss_and_gradients).run()


@dataclass
class _Training:
    spec: Spec
    data_set: DataSet
    state: TrainState
    folder: Path
    group: Group
    stop: StopRequests
    status: StatusLog
    loss_and_gradients: LossAndGradients

    def run(self) -> None:
        self.status.final_kpi = self.state.metrics
        for epoch in range(self.state.epoch + 1, self.spec.train.num_epochs + 1):
            fail_if_due(self.spec.train, epoch, self.group.rank, self.state.weights)
            started = time.monotonic()
            batches, images_seen = self._batches(started)
            self._close_epoch(images_seen)
            self._report(epoch, batches, time.monotonic() - started)
        digest = checkpoint.weights_digest(self.state)
        _log(self.group, f"Training is complete: weights have sha256 {digest}")

    def _batches(self, started: float) -> tuple[int, int]:
        """Train what is left of the epoch: how many batches that was, how many images it has."""
        images, labels = self.data_set.split("train")
        state, size = self.state, self.state.batch_size
        rng = _generator(state)
        order = rng.permutation(len(labels))
        total = math.ceil(len(labels) / size)
        before = state.batch
        while state.batch < total:
            # The batch is the same whatever the number of ranks: each takes its part of it.
            whole = order[state.batch * size : (state.batch + 1) * size]
            part = whole[self.group.rank :: self.group.world]
            share = (state.batch + 1 - before) / total
            _pause_until(started + self.spec.train.epoch_seconds * share, self.stop)
            own = self.loss_and_gradients(state.weights, images[part], labels[part])
            everybody, stop_signal = _add_up(self.group, own, self.stop.noted)
            self._check_finite(everybody.loss_sum, state.batch + 1)
            _descend(state.weights, state.velocity, everybody, self.spec.train.optim)
            state.loss_sum += everybody.loss_sum
            state.batch += 1
            if stop_signal:
                self._give_way(stop_signal)
        state.rng_state = dict(rng.bit_generator.state)
        return total - before, len(labels)

    def _close_epoch(self, images_seen: int) -> None:
        state = self.state
        loss, accuracy = mean_loss_and_accuracy(state.weights, *self.data_set.split("val"))
        self._check_finite(loss, state.batch)
        state.metrics = {
            "train_loss": state.loss_sum / images_seen,
            "val_loss": loss,
            "val_acc": accuracy,
        }
        state.epoch, state.batch, state.loss_sum = state.epoch + 1, 0, 0.0

    def _report(self, epoch: int, batches: int, seconds: float) -> None:
        last = self.spec.train.num_epochs
        due = epoch % self.spec.train.checkpoint_interval == 0 or epoch == last
        if self.group.rank == 0 and due:
            checkpoint.save(self.state, self.folder)
        metrics = self.state.metrics
        # Only now: who reads of an epoch may rely on its checkpoint.
        self.status.epoch(epoch, last, seconds, metrics)
        _log(
            self.group,
            f"Epoch {epoch}/{last}: train_loss={metrics['train_loss']:.4f} "
            f"val_loss={metrics['val_loss']:.4f} val_acc={metrics['val_acc']:.4f} "
            f"lr={self.spec.train.optim.lr:g} {batches / seconds:.0f} it/s",
        )

    def _give_way(self, signal_number: int) -> None:
        """Save the state in the middle of the epoch and leave."""
        note = ""
        if self.group.rank == 0:
            path = checkpoint.save(self.state, self.folder)
            note = f"; to go on, set {_RESUME_KEY} to {path}"
        raise InterruptedBySignal(signal_number, note)

    def _check_finite(self, loss: float, batch: int) -> None:
        if not math.isfinite(loss):
            raise TrainerError(
                f"the loss is {loss} at epoch {self.state.epoch + 1}, batch {batch}: "
                f"training has diverged, try a train.optim.lr below {self.spec.train.optim.lr:g}"
            )


def _starting_state(spec: Spec, data_set: DataSet, digest: str) -> TrainState:
    sizes = [data_set.image_size**2, *spec.model.hidden, len(data.CLASSES)]
    path = spec.train.resume_training_checkpoint_path
    state = _resumed(Path(path), sizes) if path else _fresh(spec, sizes)
    if state.batch and (state.batch_size, state.data_digest) != (spec.dataset.batch_size, digest):
        raise CheckpointError(
            f"{_RESUME_KEY}: {path} was saved in the middle of an epoch, of other data or with "
            f"dataset.batch_size={state.batch_size}: resume with the same data set and batch size"
        )
    state.batch_size, state.data_digest = spec.dataset.batch_size, digest
    return state


def _fresh(spec: Spec, sizes: list[int]) -> TrainState:
    rng = np.random.default_rng(spec.train.seed)
    weights = initial_weights(sizes, rng)
    velocity = {name: np.zeros_like(values) for name, values in weights.items()}
    return TrainState(weights, velocity, dict(rng.bit_generator.state))


def _resumed(path: Path, sizes: list[int]) -> TrainState:
    state = checkpoint.load(path, _RESUME_KEY)
    if layer_sizes(state.weights) != sizes:
        raise CheckpointError(
            f"{_RESUME_KEY}: {path} has layers {layer_sizes(state.weights)}, model.hidden and the "
            f"data make {sizes}: resume with the model that was trained"
        )
    return state


def _generator(state: TrainState) -> np.random.Generator:
    bits = np.random.PCG64()
    bits.state = cast(Any, state.rng_state)
    return np.random.Generator(bits)


def _fingerprint(spec: Spec, data_digest: str) -> str:
    optim = asdict(spec.train.optim)
    facts = [data_digest, spec.model.hidden, spec.dataset.batch_size, spec.train.num_epochs, optim]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _add_up(group: Group, own: BatchGradients, stop: int) -> tuple[BatchGradients, int]:
    """The batch as all ranks together saw it."""
    names = sorted(own.gradients)
    parts = [own.gradients[name].ravel() for name in names]
    vector = np.concatenate([*parts, [own.loss_sum, own.count]]).astype(np.float64)
    total, stop = group.add_up(vector, stop)
    gradients: Weights = {}
    start = 0
    for name in names:
        shape, size = own.gradients[name].shape, own.gradients[name].size
        gradients[name] = total[start : start + size].reshape(shape).astype(np.float32)
        start += size
    return BatchGradients(gradients, float(total[-2]), int(total[-1])), stop


def _descend(weights: Weights, velocity: Weights, batch: BatchGradients, optim: OptimSpec) -> None:
    """One step of gradient descent with momentum; decay is for matrices, not for biases."""
    for name, values in weights.items():
        step = batch.gradients[name] / np.float32(batch.count)
        if name.endswith("weight"):
            step += np.float32(optim.weight_decay) * values
        velocity[name] = np.float32(optim.momentum) * velocity[name] + step
        values -= np.float32(optim.lr) * velocity[name]


def _pause_until(moment: float, stop: StopRequests) -> None:
    while not stop.noted and (rest := moment - time.monotonic()) > 0:
        time.sleep(min(rest, _GLANCE_SECONDS))


def _announce(spec: Spec, data_set: DataSet, state: TrainState, group: Group, where: str) -> None:
    images, size = len(data_set.labels), data_set.image_size
    shape = "-".join(map(str, layer_sizes(state.weights)))
    _log(group, f"Training an MLP {shape} on {images} images of {size}x{size} with {where}")
    if group.world > 1:
        _log(group, f"Rank {group.rank} of {group.world}: gradients are averaged over all ranks")
    if spec.train.resume_training_checkpoint_path:
        position = f"{state.epoch} whole epochs and {state.batch} batches"
        _log(group, f"Resuming after {position} of {spec.train.num_epochs} epochs")


def _log(group: Group, line: str) -> None:
    prefix = f"[rank {group.rank}] " if group.rank else ""
    print(prefix + line, flush=True)
