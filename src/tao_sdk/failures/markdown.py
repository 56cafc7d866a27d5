"""The catalogue as tables for the documentation."""

from __future__ import annotations

import re

from tao_sdk.failures.catalogue import CATALOGUE, FAMILIES
from tao_sdk.failures.cause import Cause

_NAME = re.compile(r"\{(\w+)\}")


def catalogue_markdown() -> str:
    """One table per family: a generated part of `docs/reference/failures.md`."""
    retriable = sum(cause.err_class.retriable for cause in CATALOGUE)
    parts = [f"{len(CATALOGUE)} causes, of which {retriable} are worth a retry (marked ↻)."]
    for name, family in FAMILIES.items():
        rows = [_row(cause) for cause in family.CAUSES]
        parts.append(
            "\n".join([f"### {name}", "", "| Cause | Class | What to do |", "|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _row(cause: Cause) -> str:
    mark = " ↻" if cause.err_class.retriable else ""
    says = _cell(cause.cause)
    return f"| `{cause.id}`: {says} | {cause.err_class}{mark} | {_cell(cause.suggestion)} |"


def _cell(template: str) -> str:
    """A template for readers: names stressed, optional parts shown."""
    text = template.replace("|", "\\|").replace("<", "&lt;").replace("[", "").replace("]", "")
    return _NAME.sub(r"*\1*", text)
