"""Records: TAO's status.json lines, and the dictionaries that trainers print."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tao_sdk.progress.numbers import (
    NUMBER,
    is_about_the_model,
    is_loss,
    to_count,
    to_float,
    to_seconds,
)
from tao_sdk.progress.sightings import Sighting, Span
from tao_sdk.progress.transfers import json_object

_STATUSES = frozenset({"STARTED", "RUNNING", "SUCCESS", "FAILURE", "SKIPPED"})
_VALUE_TABLES = ("kpi", "graphical")
_LEARNING_RATES = ("lr", "learning_rate")
_LONGEST_NAME = 128
_PRINTED_PAIR = re.compile(rf"['\"]([\w./@-]{{1,64}})['\"]: ?['\"]?({NUMBER})['\"]?(?=[,}}])")
_PRINTED_ETA = re.compile(r"['\"]eta['\"]: ?['\"]([^'\"]{1,32})['\"]")


@dataclass(frozen=True)
class StatusRecord:
    """One line of status.json."""

    status: str
    message: str
    sighting: Sighting


# -- status.json


def read_status(text: str) -> StatusRecord | None:
    """A line of status.json; None when it is not one."""
    record = json_object(text.strip())
    if record is None or record.get("status") not in _STATUSES:
        return None
    message = record.get("message")
    return StatusRecord(
        status=record["status"],
        message=message if isinstance(message, str) else "",
        sighting=_status_sighting(record),
    )


def _status_sighting(record: Mapping[str, Any]) -> Sighting:
    epoch, epochs = to_count(record.get("epoch")), to_count(record.get("max_epoch"))
    left = to_seconds(_first_of(record, ("eta", "ETA")))
    per_epoch = to_seconds(record.get("time_per_epoch"))
    step = to_count(_first_of(record, ("step", "cur_iter", "step_in_epoch")))
    steps = to_count(_first_of(record, ("max_step", "max_iters", "max_iter", "steps_per_epoch")))
    return Sighting(
        epoch=epoch or None,
        epochs=epochs or None,
        epoch_part=_part_done(epoch, epochs, left, per_epoch),
        step=step,
        steps=steps or None,
        steps_of=Span.EPOCH if "step_in_epoch" in record and "step" not in record else Span.RUN,
        values=_status_values(record),
        seconds_left=left,
        epoch_seconds=per_epoch,
        is_current=True,
    )


def _part_done(
    epoch: int | None, epochs: int | None, left: float | None, per_epoch: float | None
) -> float | None:
    """How much of `epoch` is done.

    Some writers mean the epoch just finished, others the one at work. The time left, divided by
    the time of an epoch, tells which; without it we do not claim more than is certain.
    """
    if not epoch:
        return None
    if epochs is None or left is None or not per_epoch:
        return 0.0
    return min(1.0, max(0.0, epochs - left / per_epoch - (epoch - 1)))


def _status_values(record: Mapping[str, Any]) -> dict[str, float]:
    pairs = [
        (name, value) for name, value in record.items() if is_loss(name) or name in _LEARNING_RATES
    ]
    for table in _VALUE_TABLES:
        entries = record.get(table)
        if isinstance(entries, dict):
            pairs += entries.items()
    return _values(pairs)


# -- printed dictionaries


def read_printed_dictionary(text: str) -> Sighting | None:
    """`{'loss': 0.41, 'learning_rate': 4e-05, 'epoch': 1.27}`, in Python's spelling or JSON's."""
    start = text.find("{")
    if start < 0:
        return None
    printed = dict(_PRINTED_PAIR.findall(text, start))
    if not any(is_loss(name) or "eval_" in name for name in printed):
        return None  # a configuration, most likely
    if "train_runtime" in printed:
        printed.pop("train_loss", None)  # the mean over the whole run, not the latest
    epoch = to_float(printed.get("epoch"))
    step = to_count(_first_of(printed, ("global_step", "step", "iter")))
    if epoch is None and step is None:
        return None
    left = _PRINTED_ETA.search(text, start)
    number, part = _fractional_epoch(epoch)
    return Sighting(
        epoch=number,
        epoch_part=part,
        step=step,
        values=_values(printed.items()),
        seconds_left=to_seconds(left.group(1)) if left else None,
        confirms_loop="loss" in printed,
    )


def _fractional_epoch(epoch: float | None) -> tuple[int | None, float | None]:
    """1.27 is in the second epoch with 0.27 of it done; 3.0 is the end of the third."""
    if epoch is None or not 0 <= epoch < 1e9:
        return None, None
    number = max(1, math.ceil(epoch))
    return number, epoch - (number - 1)


# -- both


def _values(pairs: Iterable[tuple[str, Any]]) -> dict[str, float]:
    numbers = ((name, to_float(value)) for name, value in pairs if _is_a_name(name))
    return {name: value for name, value in numbers if value is not None}


def _is_a_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and text.isprintable() and is_about_the_model(text)


def _first_of(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((record[name] for name in names if name in record), None)
