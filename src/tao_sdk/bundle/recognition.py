"""Telling commands that carry the runner from others; every job asks, so it costs nothing."""

from __future__ import annotations

import re

FIRST_LINE = "# tao-runner 2: a program and its payload, compressed"


def carries_runner(command: str) -> bool:
    """Was this command made by `build_entrypoint`?"""
    return command.startswith(FIRST_LINE)


# Anywhere in a text, however it is quoted or indented there.
_BUNDLE = re.compile(r"(3<<\S*TAO_END\S*)(.*?)(TAO_END)", re.DOTALL)


def without_bundle(text: str) -> str:
    """The text with its bundle told in words: what is in it can be read elsewhere."""
    return _BUNDLE.sub(
        lambda found: (
            f"{found[1]}\n[the runner and its payload: {len(found[2]):,} bytes]\n{found[3]}"
        ),
        text,
    )
