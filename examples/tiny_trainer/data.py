"""The data set: drawn digits with shifts, slants, stroke widths and noise.

Generated from a seed, always the same for the same seed, or read from a folder that the
`dataset` action has written.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from .errors import DataError
from .files import write_whole
from .spec import DatasetSpec

FloatArray = npt.NDArray[np.float32]
Split = Literal["train", "val"]

IMAGES_FILE = "images.npz"
ANNOTATIONS_FILE = "annotations.json"
CLASSES = tuple("0123456789")
VALIDATION_SHARE = 0.2
_CHUNK = 256  # images drawn at once: bounds the memory of a large data set


@dataclass(frozen=True)
class DataSet:
    images: npt.NDArray[np.uint8]
    """Grey values, of shape (images, size, size)."""
    labels: npt.NDArray[np.int64]
    validation: npt.NDArray[np.bool_]

    @property
    def image_size(self) -> int:
        return int(self.images.shape[1])

    def indices(self, split: Split) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.validation == (split == "val"))

    def split(self, split: Split) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Images as rows of values around zero, and their labels."""
        chosen = self.indices(split)
        pixels = self.images[chosen].reshape(len(chosen), -1).astype(np.float32)
        return pixels / np.float32(255) - np.float32(0.5), self.labels[chosen]

    def digest(self) -> str:
        """Tells whether two processes train on the same data."""
        parts = (self.images, self.labels, self.validation)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def load(spec: DatasetSpec) -> DataSet:
    """The data set that a spec asks for: the folder at `path`, otherwise generated."""
    return read_folder(Path(spec.path)) if spec.path else generate(spec)


def generate(spec: DatasetSpec) -> DataSet:
    """Draw `num_samples` digits, evenly spread over the ten classes."""
    rng = np.random.default_rng(spec.seed)
    count, size = spec.num_samples, spec.image_size
    labels = rng.permutation(np.arange(count) % len(CLASSES)).astype(np.int64)
    shift = rng.uniform(-0.12, 0.12, (count, 2))
    scale = rng.uniform(0.8, 1.15, (count, 2))
    slant = rng.uniform(-0.25, 0.25, count)
    thickness = rng.uniform(0.03, 0.10, count)
    noise = rng.normal(0.0, 0.15, (count, size * size))
    ink = np.empty((count, size * size))
    for digit in range(len(CLASSES)):
        of_digit = np.flatnonzero(labels == digit)
        for start in range(0, len(of_digit), _CHUNK):
            chunk = of_digit[start : start + _CHUNK]
            points = _pixels_in_glyph_space(size, shift[chunk], scale[chunk], slant[chunk])
            ink[chunk] = _ink(points, _STROKES[digit], thickness[chunk], 1.0 / size)
    grey = np.clip(np.rint((ink + noise) * 255), 0, 255).astype(np.uint8)
    return DataSet(
        images=grey.reshape(count, size, size),
        labels=labels,
        validation=np.arange(count) >= count - int(count * VALIDATION_SHARE),
    )


def write_folder(data: DataSet, folder: Path) -> None:
    """Write the images as .npz and the labels and splits as an annotations file."""
    annotations = [
        {"image": index, "label": CLASSES[label], "split": "val" if is_validation else "train"}
        for index, (label, is_validation) in enumerate(
            zip(data.labels.tolist(), data.validation.tolist(), strict=True)
        )
    ]
    document = {
        "classes": list(CLASSES),
        "image_size": data.image_size,
        "images_file": IMAGES_FILE,
        "annotations": annotations,
    }
    write_whole(folder / IMAGES_FILE, lambda file: np.savez_compressed(file, images=data.images))
    text = json.dumps(document, indent=1) + "\n"
    write_whole(folder / ANNOTATIONS_FILE, lambda file: file.write(text.encode()))


def read_folder(folder: Path) -> DataSet:
    """Read what `write_folder` wrote."""
    try:
        document = json.loads((folder / ANNOTATIONS_FILE).read_text(encoding="utf-8"))
        with np.load(folder / IMAGES_FILE, allow_pickle=False) as archive:
            images = archive["images"]
        return _assemble(images, document)
    except OSError as error:
        raise DataError(
            f"dataset.path: cannot read the data set in {folder}: {error}; expected "
            f"{IMAGES_FILE} and {ANNOTATIONS_FILE}, as the `dataset` action writes them"
        ) from error
    except (ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise DataError(f"dataset.path: the data set in {folder} is damaged: {error!r}") from error


def _assemble(images: npt.NDArray[Any], document: dict[str, Any]) -> DataSet:
    annotations = sorted(document["annotations"], key=lambda entry: int(entry["image"]))
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1] != images.shape[2]:
        raise ValueError(f"images are {images.dtype} of shape {images.shape}, not square uint8")
    if [entry["image"] for entry in annotations] != list(range(len(images))):
        raise ValueError(f"the annotations do not number the {len(images)} images from 0")
    splits = {entry["split"] for entry in annotations}
    if splits != {"train", "val"}:
        raise ValueError(f"the splits are {sorted(splits)}, not train and val")
    return DataSet(
        images=images,
        labels=np.array([CLASSES.index(entry["label"]) for entry in annotations], dtype=np.int64),
        validation=np.array([entry["split"] == "val" for entry in annotations], dtype=np.bool_),
    )


def _pixels_in_glyph_space(
    size: int,
    shift: npt.NDArray[np.float64],
    scale: npt.NDArray[np.float64],
    slant: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Where each pixel of each image lies on the undistorted glyph: (images, pixels, 2).

    Moving the pixels back is cheaper than moving every stroke of every image.
    """
    centres = (np.arange(size) + 0.5) / size - 0.5
    y, x = (axis.ravel() for axis in np.meshgrid(centres, centres, indexing="ij"))
    moved = (np.stack([x, y], axis=-1) - shift[:, None, :]) / scale[:, None, :]
    moved[:, :, 0] += slant[:, None] * moved[:, :, 1]
    return moved + 0.5


def _ink(
    points: npt.NDArray[np.float64],
    strokes: npt.NDArray[np.float64],
    thickness: npt.NDArray[np.float64],
    softness: float,
) -> npt.NDArray[np.float64]:
    """How dark each point is: 1 on a stroke, falling to 0 within `softness` beside it."""
    nearest = np.full(points.shape[:2], np.inf)
    for start, end in strokes:
        along = end - start
        position = np.clip((points - start) @ along / (along @ along), 0.0, 1.0)
        offset = points - start - position[:, :, None] * along
        nearest = np.minimum(nearest, np.einsum("ijk,ijk->ij", offset, offset))
    inside = (thickness[:, None] - np.sqrt(nearest)) / softness + 0.5
    ink: npt.NDArray[np.float64] = np.clip(inside, 0.0, 1.0)
    return ink


def _lines(*points: tuple[float, float]) -> list[tuple[float, float]]:
    return list(points)


def _arc(
    x: float, y: float, radius_x: float, radius_y: float, start: int, end: int
) -> list[tuple[float, float]]:
    """Points on an ellipse, in degrees clockwise from three o'clock (y points down)."""
    angles = np.radians(np.linspace(start, end, 2 + abs(end - start) // 45))
    return [(x + radius_x * np.cos(angle), y + radius_y * np.sin(angle)) for angle in angles]


def _segments(*polylines: list[tuple[float, float]]) -> npt.NDArray[np.float64]:
    return np.array(
        [pair for line in polylines for pair in pairwise(line)],
        dtype=np.float64,
    )


# Each digit as line segments in the unit square, shape (segments, 2 ends, 2 coordinates).
_STROKES = (
    _segments(_arc(0.5, 0.5, 0.24, 0.38, 0, 360)),
    _segments(_lines((0.34, 0.28), (0.52, 0.12), (0.52, 0.88))),
    _segments(
        [*_arc(0.5, 0.34, 0.23, 0.22, 180, 390), (0.27, 0.88)], _lines((0.27, 0.88), (0.76, 0.88))
    ),
    _segments(_arc(0.47, 0.31, 0.24, 0.19, 200, 450), _arc(0.47, 0.69, 0.27, 0.19, 270, 520)),
    _segments(_lines((0.62, 0.88), (0.62, 0.12), (0.24, 0.64), (0.8, 0.64))),
    _segments(
        _lines((0.74, 0.12), (0.32, 0.12), (0.3, 0.45)), _arc(0.47, 0.64, 0.27, 0.24, 225, 500)
    ),
    _segments(_arc(0.66, 0.62, 0.4, 0.5, 270, 180), _arc(0.5, 0.66, 0.24, 0.22, 0, 360)),
    _segments(_lines((0.24, 0.12), (0.76, 0.12), (0.42, 0.88))),
    _segments(_arc(0.5, 0.31, 0.2, 0.19, 0, 360), _arc(0.5, 0.69, 0.24, 0.19, 0, 360)),
    _segments(_arc(0.5, 0.34, 0.24, 0.22, 0, 360), _arc(0.34, 0.38, 0.4, 0.5, 0, 90)),
)
