"""Parts of `--help` that all commands have in common."""

from __future__ import annotations


def examples(*pairs: tuple[str, str]) -> str:
    """The end of a command's help: examples and what they do."""
    width = max(len(typed) for typed, _ in pairs)
    lines = [f"  {typed:<{width}}  # {what}" for typed, what in pairs]
    # The backspace keeps click from filling the lines up.
    return "\n".join(["\b", "Examples:", *lines])
