"""Checkpoints: everything that training needs to go on exactly where it was.

The format is safetensors: eight bytes with the length of a JSON header, the header (name ->
type, shape, place), then the raw tensors. What is not a tensor is JSON in the header's
`__metadata__`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError
from .files import write_whole
from .model import Array, Weights

_LENGTH = struct.Struct("<Q")
_METADATA_KEY = "tiny_trainer"
_VELOCITY = "optimizer."


@dataclass
class TrainState:
    """All that changes while training."""

    weights: Weights
    velocity: Weights
    rng_state: dict[str, Any]
    """The generator at the start of the current epoch, before the shuffle."""
    epoch: int = 0
    """Whole epochs done."""
    batch: int = 0
    """Batches done of the epoch after those."""
    batch_size: int = 0
    data_digest: str = ""
    loss_sum: float = 0.0
    """Over the images of those batches."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the last whole epoch."""

    def file_name(self) -> str:
        step = f"_step_{self.batch:04d}" if self.batch else ""
        return f"model_epoch_{self.epoch:03d}{step}.safetensors"


def save(state: TrainState, folder: Path) -> Path:
    path = folder / state.file_name()
    write_whole(path, lambda file: file.write(encode(state)))
    return path


def load(path: Path, key: str) -> TrainState:
    """Read a checkpoint; `key` is the spec key that named it, for the message."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{key}: cannot read {path}: {error.strerror}") from error
    try:
        return decode(content)
    except CheckpointError as error:
        raise CheckpointError(f"{key}: {path} {error}") from error


def encode(state: TrainState) -> bytes:
    velocity = {_VELOCITY + name: values for name, values in state.velocity.items()}
    return encode_tensors({**state.weights, **velocity}, {_METADATA_KEY: _facts(state)})


def decode(content: bytes) -> TrainState:
    tensors, metadata = decode_tensors(content)
    if _METADATA_KEY not in metadata:
        raise CheckpointError("holds tensors, but is not a checkpoint of this trainer")
    try:
        return TrainState(
            weights={n: v for n, v in tensors.items() if not n.startswith(_VELOCITY)},
            velocity={
                n.removeprefix(_VELOCITY): v for n, v in tensors.items() if n.startswith(_VELOCITY)
            },
            **json.loads(metadata[_METADATA_KEY]),
        )
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"was written by another version of this trainer: {error}") from error


def encode_tensors(tensors: Weights, metadata: dict[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata}
    parts = []
    end = 0
    for name in sorted(tensors):
        part = tensors[name].astype("<f4").tobytes()
        start, end = end, end + len(part)
        shape = list(tensors[name].shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
        parts.append(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the tensors aligned
    return b"".join([_LENGTH.pack(len(text)), text, *parts])


def decode_tensors(content: bytes) -> tuple[Weights, dict[str, str]]:
    header, body = _split(content)
    try:
        metadata = header.pop("__metadata__", {})
        expected = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if len(body) != expected:
            raise CheckpointError(
                f"is truncated or damaged: its header speaks of {expected} bytes of tensors, "
                f"the file has {len(body)}"
            )
        return {name: _tensor(name, entry, body) for name, entry in header.items()}, metadata
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CheckpointError(f"has a damaged header: {error!r}") from error


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    if len(content) < _LENGTH.size:
        raise CheckpointError(f"is truncated: it has only {len(content)} bytes")
    (length,) = _LENGTH.unpack_from(content)
    text, body = content[_LENGTH.size : _LENGTH.size + length], content[_LENGTH.size + length :]
    if not text.startswith(b"{"):
        raise CheckpointError("is not a safetensors file")
    if len(text) < length:
        raise CheckpointError(
            f"is truncated: its header has {length} bytes, the file {len(content)}"
        )
    try:
        header: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"has a damaged header: {error}") from error
    return header, body


def _tensor(name: str, entry: dict[str, Any], body: bytes) -> Array:
    if entry["dtype"] != "F32":
        raise CheckpointError(f"has tensor {name} as {entry['dtype']}: only F32 can be read")
    start, end = entry["data_offsets"]
    # A copy, since what frombuffer gives cannot be written to.
    return np.frombuffer(body[start:end], dtype="<f4").reshape(entry["shape"]).astype(np.float32)


def weights_digest(state: TrainState) -> str:
    """Equal for equal weights: how to see that two ranks have trained the same."""
    return hashlib.sha256(encode_tensors(state.weights, {})).hexdigest()


def _facts(state: TrainState) -> str:
    tensors = ("weights", "velocity")
    return json.dumps({name: v for name, v in vars(state).items() if name not in tensors})
