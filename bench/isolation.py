"""What every measured process sees: nothing of this checkout, nothing of the user's."""

from __future__ import annotations

import os
from pathlib import Path

# -I: no PYTHON* variables, no user site, no current folder on the path.
ISOLATED = "-I"

_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR")


def clean_environment(home: Path, **extra: str) -> dict[str, str]:
    """An environment with a home and a state folder of its own.

    PYTHONDONTWRITEBYTECODE is not in it: an installed package is compiled, and so must be what is
    measured.
    """
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "HOME": str(home), "TAO_SDK_STATE_DIR": str(home / "state"), **extra}
