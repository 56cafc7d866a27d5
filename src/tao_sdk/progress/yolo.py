"""The tables of YOLOv5, YOLOv7 and Ultralytics: the names stand in a header, above the numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

from tao_sdk.progress.bars import find_tqdm, seconds_in_all, steps_per_second_of
from tao_sdk.progress.numbers import inverse, is_about_the_model, steps_per_second, to_seconds
from tao_sdk.progress.sightings import Sighting, Span

_TRAINING_HEADER = re.compile(r"\s{0,40}Epoch\s{1,20}gpu_mem((?:\s{1,20}[\w/]{1,20}){3,12})", re.I)
_VALIDATION_HEADER = re.compile(
    r"\s{0,40}Class\s{1,20}Images\s{1,20}(?:Instances|Labels|Targets)"
    r"((?:\s{1,20}[\w@.:()-]{1,24}){2,10})"
)
_TRAINING_ROW = re.compile(
    r"\s{0,40}(\d{1,6})/(\d{1,6})\s{1,20}\d[\d.]{0,8}[GMK]?B?"
    r"((?:\s{1,20}(?:\d[\d.]{0,12}(?:e[-+]?\d{1,3})?|nan|inf)){2,10}):?\s{1,8}(\d{1,3}%.{0,2000})"
)
_VALIDATION_ROW = re.compile(
    r"\s{0,40}all\s{1,20}\d{1,9}\s{1,20}\d[\d.e+]{0,12}"
    r"((?:\s{1,20}(?:\d[\d.]{0,12}(?:e[-+]?\d{1,3})?|nan)){2,10})\s{0,8}$"
)
_NEW_BAR = re.compile(
    r"[━─╸╺ ]{2,40}(\d{1,9})/(\d{1,9})(?:.{0,40}?<(\d{1,6}(?:\.\d{1,3})?|[\d:]{1,9})s?)?"
)
_NEW_BAR_PACE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)s/it")
_NOT_A_METRIC = frozenset({"instances", "size", "labels", "targets", "img_size"})


class YoloTable:
    """Remembers the latest headers; everything else is in the row."""

    def __init__(self) -> None:
        self._training_names: tuple[str, ...] = ()
        self._validation_names: tuple[str, ...] = ()

    def read(self, text: str) -> Sighting | None:
        header = _TRAINING_HEADER.match(text)
        if header:
            self._training_names = tuple(header.group(1).split())
            return None
        header = _VALIDATION_HEADER.match(text)
        if header:
            names = header.group(1).split(": ")[0].split()
            self._validation_names = tuple(_validation_name(name) for name in names)
            return None
        row = _TRAINING_ROW.match(text)
        if row:
            return self._training_row(row)
        row = _VALIDATION_ROW.match(text)
        if row:
            return Sighting(values=_by_name(self._validation_names, row.group(1)))
        return None

    def _training_row(self, row: re.Match[str]) -> Sighting:
        # The old ones count from 0 to the last epoch, Ultralytics from 1 to their number. They
        # are told apart by the objectness loss, which Ultralytics does not have.
        has_objectness = any(name.startswith("obj") for name in self._training_names)
        from_zero = int(has_objectness or int(row.group(1)) == 0)
        bar = _row_bar(row.group(4))
        return Sighting(
            epoch=int(row.group(1)) + from_zero,
            epochs=int(row.group(2)) + from_zero,
            step=bar.step,
            steps=bar.steps,
            steps_of=Span.EPOCH,
            values=_by_name(self._training_names, row.group(3)),
            rate=bar.rate,
            seconds_left=bar.seconds_left,
            seconds_left_of=Span.EPOCH,
            epoch_seconds=bar.seconds_in_all,
        )


class _RowBar(NamedTuple):
    step: int | None = None
    steps: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    seconds_in_all: float | None = None


def _row_bar(text: str) -> _RowBar:
    """The bar at the end of a row: tqdm's, or the one that Ultralytics draws since 8.3."""
    old = find_tqdm(text)
    if old:
        return _RowBar(
            int(old["done"]),
            int(old["total"]) or None,
            steps_per_second_of(old),
            to_seconds(old["left"]),
            seconds_in_all(old),
        )
    new = _NEW_BAR.search(text)
    if new is None:
        return _RowBar()
    slow = _NEW_BAR_PACE.search(text)
    rate = inverse(float(slow.group(1))) if slow else steps_per_second(text)
    step, steps = int(new.group(1)), int(new.group(2)) or None
    in_all = steps / rate if steps and rate else None
    left = 0.0 if step == steps else to_seconds(new.group(3) or "")
    return _RowBar(step, steps, rate, left, in_all)


def _by_name(names: tuple[str, ...], numbers: str) -> dict[str, float]:
    """The numbers under the header's names. Without a header they mean nothing to us."""
    pairs = zip(names, map(float, numbers.split()), strict=False)
    return {
        ("total_loss" if name == "total" else name): value
        for name, value in pairs
        if name.lower() not in _NOT_A_METRIC and is_about_the_model(name)
    }


def _validation_name(name: str) -> str:
    short = name.partition("(")[2] or name
    return {"P": "precision", "R": "recall"}.get(short.strip("):"), short.strip("):"))
