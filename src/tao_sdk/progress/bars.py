"""Bars that tools draw: tqdm (and Lightning with it), rich, Keras."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tao_sdk.progress.numbers import inverse, named_numbers, to_float, to_seconds
from tao_sdk.progress.sightings import Loop, Sighting, Span

_TQDM = re.compile(
    r"\d{1,3}%\|[^|]{0,512}\| {0,4}(?P<done>\d{1,12})/(?P<total>\d{1,12})(?![\w.])"
    r"(?: ?\[(?P<elapsed>[\d:]{1,12})<(?P<left>[\d:?]{1,12})"
    r"(?:, {0,8}(?P<rate>[\d.]{1,12}|\?) ?(?P<unit>[A-Za-z]{1,12}/[A-Za-z]{1,12}))?"
    r"(?P<postfix>[^\]]{0,4000}))?"
)
_STEP_UNITS = frozenset({"it/s", "batch/s", "batches/s", "step/s", "steps/s"})
_INVERSE_STEP_UNITS = frozenset({"s/it", "s/batch", "s/batches", "s/step", "s/steps"})

# What stands before the bar, without the prefixes of launchers: "[rank0]:", "[1,0]<stderr>:", "0:".
_LAUNCHER_PREFIX = re.compile(
    r"^(?:\s{0,8}(?:\[[\w ,.:-]{1,40}\](?:<\w{1,8}>)?:?|\d{1,5}:)\s{0,8}){0,4}"
)
_EPOCH_NAME = re.compile(
    r"(?:^|[\s\]])epoch[ :]{0,3}\[?(\d{1,9})(?: ?/ ?(\d{1,9}))?(?![\w.])", re.IGNORECASE
)
_EPOCHS_NAME = re.compile(r"(?:train(?:ing)? )?epochs?[ :]{0,3}", re.IGNORECASE)
_TRAINING_NAME = re.compile(r"(?:train(?:ing)?|steps?|iters?|iterations?)\b", re.IGNORECASE)
_EVALUATION_NAME = re.compile(
    r"\b(?:val(?:id|idat\w*)?|test(?:ing)?|eval(?:uat\w*)?|predict\w*|infer\w*)\b", re.IGNORECASE
)

_RICH = re.compile(
    r"\b(?:Epoch (?P<epoch>\d{1,9})/(?P<last>-?\d{1,9})|Validation|Testing|Predicting) {1,8}"
    r"[━╸╺]{1,400}"
    r" {0,400}(?P<done>\d{1,12})/(?P<total>\d{1,12}) (?P<elapsed>[\d:]{4,12}) • "
    r"(?P<left>[\d:-]{4,12})(?: {1,4}(?P<rate>\d{1,9}(?:\.\d{1,9})?)it/s)?(?P<postfix>.{0,4000})"
)

_KERAS = re.compile(
    r"\s{0,8}(?P<done>\d{1,12})/(?P<total>\d{1,12}|Unknown) {1,8}"
    r"(?:\[[=>.]{5,60}\] - |━[━─ ]{4,60}|- (?=\d{1,6}s\b))(?P<rest>.{0,4000})"
)
_KERAS_ETA = re.compile(r"ETA: {0,4}([\d:]{1,12}s?)")
_KERAS_3_SECONDS = re.compile(r"\s{0,4}([\d:]{1,12}s?) ")
_KERAS_STEP = re.compile(r"\b(\d{1,9})(us|ms|s)/step")
_NO_VALUES: Mapping[str, float] = {}
_SECONDS_OF_UNIT = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def read_tqdm(text: str) -> Sighting | Loop | None:
    """A tqdm bar: what it counts is told by the words before it."""
    bar = _TQDM.search(text)
    if bar is None:
        return None
    name = _LAUNCHER_PREFIX.sub("", text[: bar.start()][-200:]).strip(" :")
    if _EVALUATION_NAME.search(name):
        return _loop(bar, steps_per_second_of(bar), evaluation=True)
    epoch = _EPOCH_NAME.search(name)
    if epoch:
        return _epoch_bar(bar, epoch, named_numbers(name))
    if _EPOCHS_NAME.fullmatch(name):
        return _bar_of_epochs(bar)
    if _TRAINING_NAME.match(name) or "loss" in named_numbers(name):
        return _loop(bar, steps_per_second_of(bar), training=True, values=named_numbers(name))
    if not name and bar["unit"] in (None, *_STEP_UNITS, *_INVERSE_STEP_UNITS):
        return _loop(bar, steps_per_second_of(bar))
    return None  # a download, a tokeniser, the loading of a model ...


def read_rich(text: str) -> Sighting | Loop | None:
    """Lightning's other bar, drawn when `rich` is installed; epochs are counted from 0."""
    bar = _RICH.search(text)
    if bar is None:
        return None
    rate = to_float(bar["rate"]) or None  # 0.00 until it knows better
    if bar["epoch"] is None:
        return _loop(bar, rate, evaluation=True)
    last = int(bar["last"])  # negative where the trainer has no number of epochs
    return Sighting(
        epoch=int(bar["epoch"]),
        first_epoch=0,
        epochs=last + 1 if last >= 0 else None,
        step=int(bar["done"]),
        steps=int(bar["total"]) or None,
        steps_of=Span.EPOCH,
        values=named_numbers(bar["postfix"]),
        rate=rate,
        seconds_left=to_seconds(bar["left"]),
        seconds_left_of=Span.EPOCH,
        epoch_seconds=seconds_in_all(bar),
    )


def read_keras(text: str) -> Loop | None:
    """`120/400 [=====>....] - ETA: 1:02 - loss: 0.41`; Keras 3 draws with `━`."""
    bar = _KERAS.match(text)
    if bar is None:
        return None
    rest = bar["rest"]
    done, total = int(bar["done"]), None if bar["total"] == "Unknown" else int(bar["total"])
    left = _KERAS_ETA.search(rest)
    if left is None and "━" in text and total is not None and done < total:
        left = _KERAS_3_SECONDS.match(rest)  # time left while at work, time taken afterwards
    per_step = _KERAS_STEP.search(rest)
    return Loop(
        done=done,
        total=total,
        values=named_numbers(rest),
        rate=inverse(int(per_step[1]) * _SECONDS_OF_UNIT[per_step[2]]) if per_step else None,
        seconds_left=to_seconds(left[1]) if left else None,
    )


def steps_per_second_of(bar: re.Match[str]) -> float | None:
    """The rate a tqdm bar shows, where it counts steps."""
    rate = to_float(bar["rate"])
    if rate is not None and bar["unit"] in _STEP_UNITS:
        return rate
    return inverse(rate) if bar["unit"] in _INVERSE_STEP_UNITS else None


def find_tqdm(text: str) -> re.Match[str] | None:
    return _TQDM.search(text)


def seconds_in_all(bar: re.Match[str]) -> float | None:
    elapsed, left = to_seconds(bar["elapsed"]), to_seconds(bar["left"])
    return None if elapsed is None or left is None else elapsed + left


def _loop(
    bar: re.Match[str],
    rate: float | None,
    *,
    training: bool = False,
    evaluation: bool = False,
    values: Mapping[str, float] = _NO_VALUES,
) -> Loop:
    return Loop(
        done=int(bar["done"]),
        total=int(bar["total"]),
        training=training,
        evaluation=evaluation,
        values={**values, **named_numbers(bar["postfix"] or "")},
        rate=rate,
        seconds_left=to_seconds(bar["left"]),
        seconds_in_all=seconds_in_all(bar),
    )


def _epoch_bar(bar: re.Match[str], name: re.Match[str], values: Mapping[str, float]) -> Sighting:
    postfix = bar["postfix"] or ""
    # Lightning counts from 0 and shows the number of the run, which nobody else does.
    lightning = "v_num=" in postfix
    return Sighting(
        epoch=int(name.group(1)),
        first_epoch=0 if lightning else None,
        epochs=int(name.group(2) or 0) or None,
        step=int(bar["done"]),
        steps=int(bar["total"]) or None,
        steps_of=Span.EPOCH,
        values={**values, **named_numbers(postfix)},
        rate=steps_per_second_of(bar),
        seconds_left=to_seconds(bar["left"]),
        seconds_left_of=Span.EPOCH,
        epoch_seconds=seconds_in_all(bar),
    )


def _bar_of_epochs(bar: re.Match[str]) -> Sighting:
    return Sighting(
        epoch=int(bar["done"]) or None,
        epochs=int(bar["total"]) or None,
        epoch_part=1.0 if int(bar["done"]) else None,
        values=named_numbers(bar["postfix"] or ""),
        seconds_left=to_seconds(bar["left"]),
    )
