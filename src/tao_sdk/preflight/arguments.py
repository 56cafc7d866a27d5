"""What the command lines of a preflight say, as a request: pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from tao_sdk.errors import ValidationError


def read_paths(texts: Iterable[str]) -> dict[str, str]:
    """`LABEL=PATH`; a path without a label is its own."""
    found: dict[str, str] = {}
    for text in texts:
        label, mark, path = text.partition("=")
        # A URI may have an equals sign; a label has no slash.
        if not mark or "/" in label:
            label, path = text, text
        if not label.strip() or not path.strip():
            _refuse("--path", text, "LABEL=PATH")
        if label in found and found[label] != path:
            raise ValidationError(f"--path: the label {label!r} is given twice")
        found[label] = path
    return found


def read_lists(option: str, texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """`LABEL=A[,B...]`; the same label again adds to it."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        label, _, listed = text.partition("=")
        words = split(listed)
        if not label.strip() or not words:
            _refuse(option, text, "LABEL=NAME[,NAME...]")
        found[label] = tuple(dict.fromkeys((*found.get(label, ()), *words)))
    return found


def read_batches(option: str, texts: Iterable[str]) -> dict[str, tuple[int, int]]:
    """`LABEL=BATCH,SHARDS`."""
    found: dict[str, tuple[int, int]] = {}
    for text in texts:
        label, _, numbers = text.partition("=")
        words = split(numbers)
        whole = [
            int(word) for word in words if word.isdecimal() and len(word) < 19 and int(word) > 0
        ]
        if not label.strip() or len(words) != 2 or len(whole) != 2:
            _refuse(option, text, "LABEL=BATCH,SHARDS, whole numbers above 0")
        found[label] = (whole[0], whole[1])
    return found


def read_gigabytes(option: str, texts: Iterable[str]) -> tuple[float, ...]:
    """Numbers above 0, one for each GPU, or by comma."""
    found = []
    for word in (word for text in texts for word in split(text)):
        try:
            number = float(word)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            _refuse(option, word, "gigabytes, a number above 0")
        found.append(number)
    return tuple(found)


def split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _refuse(option: str, text: str, form: str) -> NoReturn:
    raise ValidationError(f"{option}: {text!r} is not of the form {form}")
