"""Lines of log that people write by hand: `Epoch 3/5: train_loss=0.28`, `iter 500: loss 2.3`."""

from __future__ import annotations

import re

from tao_sdk.progress.numbers import (
    FREE,
    inverse,
    is_loss,
    named_numbers,
    seconds_left_in,
    steps_per_second,
    without_losses,
)
from tao_sdk.progress.sightings import Sighting, Span

_EPOCH = re.compile(
    rf"{FREE}epoch[ \t]{{0,4}}[:=#]?[ \t]{{0,4}}\[?(\d{{1,9}})"
    rf"(?: {{0,2}}(?:/|of) {{0,2}}(\d{{1,9}}))?\]?(?![\w/%-]|\.\d)",
    re.IGNORECASE,
)
_STEP_IN_EPOCH = re.compile(
    r"[ \t,:|>-]{0,8}(?:(?:step|iter|iteration|batch)[ \t]{0,4}[:=#]?[ \t]{0,4})?"
    r"\[? {0,12}(\d{1,12}) {0,4}/ {0,12}(\d{1,12})(?![\w/.])",
    re.IGNORECASE,
)
_STEP = re.compile(
    rf"{FREE}(?:global[_ ]?)?(?:step|iter|iteration)[ \t]{{0,12}}[:=#]?[ \t]{{0,12}}\[? {{0,12}}"
    rf"(\d{{1,12}})(?: {{0,12}}(?:/|of) {{0,12}}(\d{{1,12}}))?\]?(?![\w/%-]|\.\w)",
    re.IGNORECASE,
)
_NOTHING_BUT_AN_EPOCH = re.compile(
    r"[\s=*#-]{0,60}epoch {1,3}\d{1,9}[\s=*#:.-]{0,60}", re.IGNORECASE
)
_EPOCH_IS_OVER = re.compile(r"\b(?:finished|done|completed?|ended|took)\b", re.IGNORECASE)
_ABOUT_ANOTHER_MOMENT = re.compile(
    r"\b(?:resum(?:e|ed|ing)|restor(?:e|ed|ing)|load(?:ed|ing)|sav(?:ed|ing)|checkpoint|best|last"
    r"|previous|from|until|every|max|total|num|after|since)\b",
    re.IGNORECASE,
)
_ABOUT_EVALUATION = re.compile(
    r"\b(?:val(?:id|idation)?|eval(?:uat\w*)?|test(?:ing)?|sanity)\b", re.IGNORECASE
)
_CONTEXT = 40
"""How far before a position the words that change its meaning are looked for."""
_ITERATION_TIME = re.compile(
    r"\b(?:iteration|iter|step)[ _]time[:=] {0,4}(\d{1,9}(?:\.\d{1,9})?) ?s\b", re.IGNORECASE
)
_DEEPSPEED = "skipped="
_LEARNING_RATES = ("lr", "learning_rate")


def read_plain_epoch(text: str) -> Sighting | None:
    """`Epoch 3/5: train_loss=0.28`, `Epoch [3/10], Step [100/600], Loss: 0.2`, `Epoch 3/10`."""
    match = _EPOCH.search(text)
    if match is None or _ABOUT_ANOTHER_MOMENT.search(_context(text, match)):
        return None
    rest = text[match.end() :]
    values = named_numbers(rest)
    if _ABOUT_EVALUATION.search(_context(text, match)):
        return _evaluation(values)
    epochs = match.group(2)
    if not (epochs or values or _NOTHING_BUT_AN_EPOCH.fullmatch(text)):
        return None  # a mention of an epoch, not a report
    inner = _STEP_IN_EPOCH.match(rest)
    part = None if inner else _part_done(values, rest)
    return Sighting(
        epoch=int(match.group(1)),
        first_epoch=None,
        epochs=int(epochs) or None if epochs else None,
        epoch_part=part,
        announces_epoch=part == 0,
        step=int(inner.group(1)) if inner else None,
        steps=int(inner.group(2)) or None if inner else None,
        steps_of=Span.EPOCH,
        values=values,
        rate=steps_per_second(rest),
        seconds_left=seconds_left_in(rest),
        seconds_left_of=Span.EPOCH if inner else Span.RUN,
    )


def read_plain_step(text: str) -> Sighting | None:
    """`step 120/4000 loss=0.4`, `iter 500: loss 2.3`, `step=100, skipped=0, lr=[5e-05]`."""
    match = _STEP.search(text)
    if match is None or _ABOUT_ANOTHER_MOMENT.search(_context(text, match)):
        return None
    values = named_numbers(text)
    if _ABOUT_EVALUATION.search(_context(text, match)):
        return _evaluation(values)
    steps = match.group(2)
    # Configurations and installers have steps, too; a report has results with them.
    if not ((steps and values) or any(map(is_loss, values)) or _DEEPSPEED in text):
        return None
    return Sighting(
        step=int(match.group(1)),
        steps=int(steps) or None if steps else None,
        values=values,
        rate=_rate(text),
        seconds_left=seconds_left_in(text),
    )


def _context(text: str, match: re.Match[str]) -> str:
    return text[max(0, match.start() - _CONTEXT) : match.start()]


def _evaluation(values: dict[str, float]) -> Sighting | None:
    found = without_losses(values)
    return Sighting(values=found) if found else None


def _part_done(values: dict[str, float], rest: str) -> float:
    """Results come at the end of an epoch; without any, the line announces it."""
    results = [name for name in values if name not in _LEARNING_RATES]
    return 1.0 if results or _EPOCH_IS_OVER.search(rest) else 0.0


def _rate(text: str) -> float | None:
    match = _ITERATION_TIME.search(text)
    return inverse(float(match.group(1))) if match else steps_per_second(text)
