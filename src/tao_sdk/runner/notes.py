"""Notes: small JSON files that processes leave for each other, and for the next attempt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any


def read_note(path: str) -> dict[str, Any]:
    """What it says; nothing where there is none, or none that could be read (yet)."""
    try:
        with open(path, encoding="utf-8") as file:
            note = json.load(file)
    except (FileNotFoundError, PermissionError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_note(path: str, note: Mapping[str, Any]) -> None:
    """Leave it, whole at once."""
    draft = f"{path}.{os.urandom(4).hex()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(json.dumps(note))  # `json.dump` is many times slower
    os.replace(draft, path)
