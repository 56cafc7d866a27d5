"""Finding what a user meant, or saying what there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["choices_for", "folded", "likely", "same_name"]

_LISTED = 12
_TELLING = 3
_ALIKE = 0.6
"""Less finds a likeness where there is none: `dino` for `nope`."""


def folded(name: str) -> str:
    """Names are compared without regard to case and surrounding space."""
    return name.strip().casefold()


def same_name(one: str, other: str) -> bool:
    return folded(one) == folded(other)


def choices_for(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what was probably meant, else what there is."""
    names = sorted(known)
    if not names:
        return "there are none"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return likely(name, names) or f"there are {', '.join(names[:_LISTED])}{more}"


def likely(name: str, known: Iterable[str]) -> str:
    """What was probably meant, as a question; "" when nothing is like it."""
    by_spelling = {_spelling(candidate): candidate for candidate in sorted(known)}
    asked = _spelling(name)
    close = difflib.get_close_matches(asked, by_spelling, n=3, cutoff=_ALIKE)
    if not close and len(asked) >= _TELLING:
        close = [spelling for spelling in by_spelling if asked in spelling][:3]
    meant = " or ".join(repr(by_spelling[spelling]) for spelling in close)
    return f"did you mean {meant}?" if close else ""


def _spelling(name: str) -> str:
    return folded(name).replace("_", "-")
