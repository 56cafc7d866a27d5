"""Commands that are too long for the kernel to hand over as one word."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import Context


def from_file(command: str, context: Context) -> str:
    """A short command that reads this one from a file."""
    os.makedirs(context.private, exist_ok=True)
    path = os.path.join(context.private, f"command.{context.rank}")
    # It may hold arguments that came from the environment.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(os.fsencode(command))
    return f". {shlex.quote(path)}"
