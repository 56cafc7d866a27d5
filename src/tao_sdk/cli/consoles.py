"""Rich's view of the terminal. Imported only where a person sees the result."""

from __future__ import annotations

from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """The terminal that stdout is, or stderr."""
    # What users named their things is text, not markup, and is not to be re-coloured.
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)
