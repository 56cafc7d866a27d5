"""Numbers, named numbers and durations in text.

Every pattern is bounded and begins where a word begins, so that searching stays linear in the
length of the text, whatever the text.
"""

from __future__ import annotations

import math
import re
from typing import Any

NUMBER = (
    r"[-+]?(?:\d{1,18}(?:\.\d{0,25})?|\.\d{1,25})(?:[eE][-+]?\d{1,3})?"
    r"|[-+]?(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?)"
)
END = r"(?![\w:/]|\.\d)"
"""What must not follow a number: that would be a time, a size, a date, a version or a name."""
FREE = r"(?<![\w/.\\='\"-])"
"""What comes next is not inside a name, a path, an option or a quoted key."""
_WORD_START = r"(?<![\w./@'\"\\-])"
_WHOLE_NUMBER = re.compile(NUMBER)
_NAMED = re.compile(
    rf"{_WORD_START}([A-Za-z_][\w./@-]{{0,63}})[ \t]{{0,4}}(?:=[ \t]{{0,4}}|:[ \t]{{1,8}})"
    rf"\[?({NUMBER}){END}"
)
_NAMED_LOSS = re.compile(
    rf"{_WORD_START}([\w./-]{{0,40}}loss)(?:[ \t]{{0,4}}[:=][ \t]{{0,8}}|[ \t]{{1,8}})"
    rf"({NUMBER}){END}",
    re.IGNORECASE,
)
_TWO_WORDS = re.compile(
    r"\b(learning|grad|loss|batch|completion|train|training|val|valid|validation|eval|test) "
    r"(rate|norm|scale|size|length|loss|acc|accuracy)\b",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"(?:(\d{1,5}) days?, )?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2}(?:\.\d{1,9})?)"
    r"|(\d{1,9}(?:\.\d{1,9})?)s?"
)
_RATE = re.compile(
    r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?) ?(?:it|iter|iters|step|steps|batch|batches)/s(?:ec)?\b"
)
_ETA = re.compile(r"\beta: {0,4}((?:\d{1,5} days?, )?[\d:]{1,12})", re.IGNORECASE)

# Numbers about the work rather than about the model. Matched against the last part of a name, so
# that `train/iteration_time` is one, too.
_BOOKKEEPING = re.compile(
    r"(?:cur|current|global|max|micro|total|train)?_?(?:batch|epoch|iter|iteration|it|step)(?:e?s)?"
    r"|(?:batch|step)_(?:idx|index|in_epoch)|steps_per_epoch|num_updates|skipped|v_num|number|version"
    r"|(?:global_)?batch_size|bsz|(?:consumed_)?samples|size|scale|loss_scale|mom|seed"
    r"|(?:max_)?mem(?:ory)?|eta|time|elapsed|wall|s|sec|runtime|train_step_timing|best"
    r"|rank|node|port|world_size|progress_percent|validation_dataset_size"
    r"|.*_(?:runtime|per_second|seconds|time)"
)


def to_float(value: Any) -> float | None:
    """A number, or the text of one, from JSON; NaN and infinity stay what they are."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return float(value) if _WHOLE_NUMBER.fullmatch(value) else None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:  # JSON has integers of any size
            return None
    return None


def to_count(value: Any) -> int | None:
    """A whole number, zero or more, from JSON."""
    amount = to_float(value)
    if amount is None or not math.isfinite(amount) or amount < 0 or amount != int(amount):
        return None
    return int(amount)


def to_seconds(value: Any) -> float | None:
    """`0:12:34`, `1:02`, `1 day, 3:00:00`, `38s` or a number of seconds."""
    if not isinstance(value, str):
        seconds = to_float(value)
        return seconds if seconds is not None and 0 <= seconds < math.inf else None
    match = _CLOCK.fullmatch(value.strip())
    if match is None:
        return None
    days, hours, minutes, rest, plain = match.groups()
    if plain is not None:
        return float(plain)
    return int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(rest)


def named_numbers(text: str) -> dict[str, float]:
    """`loss=0.41`, `val_acc: 0.9`, `lr=[5e-05]`, `loss 2.3`: by the names the tool uses."""
    joined = _TWO_WORDS.sub(lambda words: "_".join(words.groups()).lower(), text)
    found = {name: float(value) for name, value in _NAMED.findall(joined)}
    for name, value in _NAMED_LOSS.findall(joined):
        found.setdefault(name, float(value))
    return {name: value for name, value in found.items() if is_about_the_model(name)}


def is_about_the_model(name: str) -> bool:
    """Whether a number under that name says something about the model, not about the work."""
    last = name.rpartition("/")[2].lower()
    return _BOOKKEEPING.fullmatch(last) is None


def is_loss(name: str) -> bool:
    return "loss" in name.lower()


def without_losses(values: dict[str, float]) -> dict[str, float]:
    """What an evaluation found; a loss without a name of its own would pass for training's."""
    return {name: value for name, value in values.items() if not is_loss(name)}


def steps_per_second(text: str) -> float | None:
    """`3.80it/s`, `5980 it/s`, where a line says so."""
    match = _RATE.search(text)
    return float(match.group(1)) if match else None


def seconds_left_in(text: str) -> float | None:
    """`eta: 0:01:23`, where a line says so."""
    match = _ETA.search(text)
    return to_seconds(match.group(1)) if match else None


def inverse(seconds: float | None) -> float | None:
    """The rate that belongs to a duration."""
    return 1 / seconds if seconds is not None and 1e-9 < seconds < math.inf else None
