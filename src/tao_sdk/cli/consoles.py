"""Rich's view of the terminal. Imported only where a terminal shows the result."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from tao_sdk.visible_text import visible


def console(*, stderr: bool = False) -> Console:
    """The terminal that stdout is, or stderr."""
    # What users named their things is text, not markup, and is not to be re-coloured.
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def plain(text: str, style: str = "") -> Text:
    """Text of others in one style: no markup in it, and nothing that acts on the terminal."""
    return Text(visible(text), style)
