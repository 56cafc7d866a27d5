"""Lines of log in the formats of Lightning, Hugging Face, MMEngine and NeMo."""

from __future__ import annotations

import re

from tao_sdk.progress.numbers import (
    FREE,
    NUMBER,
    inverse,
    named_numbers,
    seconds_left_in,
    to_float,
    without_losses,
)
from tao_sdk.progress.sightings import Loop, Sighting, Span

# -- Lightning

_LIGHTNING_CHECKPOINT = re.compile(
    rf"{FREE}Epoch (\d{{1,9}}), global step \d{{1,12}}: '([^']{{1,64}})' "
    rf"(?:reached ({NUMBER})|was not in top)"
)
_LIGHTNING_END = re.compile(r"`Trainer\.fit` stopped: `max_(epochs|steps)=(\d{1,12})` reached")


def read_lightning_checkpoint(text: str) -> Sighting | None:
    """`Epoch 2, global step 532: 'val_mAP' reached 0.41 (best 0.41), saving model to ...`"""
    match = _LIGHTNING_CHECKPOINT.search(text)
    if match is None:
        return None
    value = to_float(match.group(3))
    values = {} if value is None else {match.group(2): value}
    return Sighting(epoch=int(match.group(1)), first_epoch=0, values=values)


def read_lightning_end(text: str) -> Sighting | None:
    """`Trainer.fit` stopped: `max_epochs=10` reached."""
    match = _LIGHTNING_END.search(text)
    if match is None:
        return None
    last = int(match.group(2)) or None
    if match.group(1) == "epochs":
        return Sighting(epoch=last, epochs=last, epoch_part=1.0, finished=True)
    return Sighting(finished=True)


# -- Hugging Face

_TOTAL_EPOCHS = re.compile(r"(?:^|\s)Num Epochs = (\d{1,3}(?:,\d{3}){1,3}|\d{1,9})\s{0,8}$")


def read_total_epochs(text: str) -> Sighting | None:
    """`  Num Epochs = 3`, announced before the first step."""
    match = _TOTAL_EPOCHS.search(text)
    return Sighting(epochs=int(match.group(1).replace(",", "")) or None) if match else None


# -- MMEngine, MMCV and the PyTorch examples

_MM = re.compile(
    rf"{FREE}(Epoch|Iter)(?:\((\w{{1,8}})\))?:?[ \t]{{0,4}}"
    r"(?:\[ {0,8}(\d{1,9})\][ \t]{0,4})?\[ {0,12}(\d{1,12})/ {0,12}(\d{1,12})\]"
)
_MM_STEP_TIME = re.compile(r"(?<![\w.])time: {0,4}(\d{1,9}(?:\.\d{1,9})?)")


def read_mmengine(text: str) -> Sighting | Loop | None:
    """`Epoch(train) [1][ 50/100]  lr: 1e-3  eta: 0:01:23  time: 0.5  loss: 1.2`"""
    match = _MM.search(text)
    if match is None:
        return None
    unit, mode, epoch, done, total = match.groups()
    rest = text[match.end() :]
    if mode in ("val", "test"):
        return _mm_evaluation(int(done), int(total), rest)
    if unit == "Epoch" and epoch is None:
        return None  # `Epoch [3/10]`: written by hand, and without steps
    return Sighting(
        epoch=int(epoch) if epoch is not None else None,
        first_epoch=None,
        step=int(done),
        steps=int(total) or None,
        steps_of=Span.EPOCH if epoch is not None else Span.RUN,
        values=named_numbers(rest),
        rate=_mm_rate(rest),
        seconds_left=seconds_left_in(rest),
    )


def _mm_evaluation(done: int, total: int, rest: str) -> Sighting | Loop:
    left = seconds_left_in(rest)
    if left is None and done == total:
        return Sighting(values=without_losses(named_numbers(rest)))  # the results, at its end
    return Loop(done, total, evaluation=True, rate=_mm_rate(rest), seconds_left=left)


def _mm_rate(text: str) -> float | None:
    match = _MM_STEP_TIME.search(text)
    return inverse(float(match.group(1))) if match else None


# -- NeMo

_NEMO = re.compile(r"Training epoch (\d{1,9}), iteration (\d{1,12})/(\d{1,12})(?: \||$)")
_NEMO_STEP_TIME = re.compile(r"train_step_timing in s: (\d{1,9}(?:\.\d{1,9})?)")


def read_nemo(text: str) -> Sighting | None:
    """`Training epoch 0, iteration 120/149 | lr: 3e-05 | reduced_train_loss: 1.2`, all from 0."""
    match = _NEMO.search(text)
    if match is None:
        return None
    timing = _NEMO_STEP_TIME.search(text)
    return Sighting(
        epoch=int(match.group(1)),
        first_epoch=0,
        step=int(match.group(2)) + 1,
        steps=int(match.group(3)) + 1,
        values=named_numbers(text[match.end() :]),
        rate=inverse(float(timing.group(1))) if timing else None,
    )
