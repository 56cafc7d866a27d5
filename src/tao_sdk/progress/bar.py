"""A progress bar in plain text, for terminals, pipes and files."""

from __future__ import annotations

from tao_sdk.progress.model import Progress

_FULL, _EMPTY, _UNKNOWN = "█", "░", "·"
_ASCII_FULL, _ASCII_EMPTY, _ASCII_UNKNOWN = "#", "-", "."
_LABEL_WIDTH = len(" 100%")


def render_bar(progress: Progress, width: int = 40, *, ascii_only: bool = False) -> str:
    """A bar with its percentage, `width` columns in all; too narrow a width drops the bar.

    The percentage is rounded down: 100% is shown only for what is complete.
    """
    full, empty, unknown = (
        (_ASCII_FULL, _ASCII_EMPTY, _ASCII_UNKNOWN) if ascii_only else (_FULL, _EMPTY, _UNKNOWN)
    )
    cells = max(0, width - _LABEL_WIDTH)
    if progress.fraction is None:
        bar, label = unknown * cells, "?%"
    else:
        filled = int(progress.fraction * cells)
        bar = full * filled + empty * (cells - filled)
        label = f"{int(progress.fraction * 100)}%"
    return bar + label.rjust(min(_LABEL_WIDTH, max(width, len(label))))
