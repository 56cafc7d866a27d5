"""Indentation told by its changes: what compresses worse than anything else, because it has
nothing to do with what stands beside it."""

from __future__ import annotations

from tao_sdk.runner.loading import DEEPER, SHALLOWER


def fold(source: str) -> str:
    """A source that has one statement in each line, as `tao_sdk.runner.loading.unfold` reads it.

    A mark for "deeper" also stands for the colon and the end of the line before it, one for
    "shallower" (of several the first) for the end of the line.
    """
    if DEEPER in source or SHALLOWER in source:
        raise ValueError("the marks of folding cannot stand in a source")
    folded, level = "", 0
    for line in source.splitlines():
        text = line.lstrip(" ")
        depth = len(line) - len(text)
        if depth > level:
            folded = folded.removesuffix(":\n") + DEEPER
        elif depth < level:
            folded = folded.removesuffix("\n") + SHALLOWER * (level - depth)
        folded += text + "\n"
        level = depth
    return folded
