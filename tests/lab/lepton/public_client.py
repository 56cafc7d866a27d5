"""The public client of Lepton (`leptonai` on PyPI), in an environment of its own in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab import unavailable
from lab.packages import cache, locked

VERSION = "0.26.6"
"""The last that has the interface api/v1."""
_SECONDS = 600


def public_client() -> Path:
    """A Python that has the client, or a skip with what would help."""
    folder = (
        cache() / "lepton" / f"client-{VERSION}-py{sys.version_info.major}{sys.version_info.minor}"
    )
    python, done = folder / "bin" / "python", folder / "done"
    if done.exists():
        return python
    install = f"TAO_LAB_INSTALL=1 (pip install leptonai=={VERSION} into {folder})"
    if os.environ.get("TAO_LAB_INSTALL") != "1":
        unavailable("lepton", "the public client is not installed", install)
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.parent / "install.lock"):
        if not done.exists():
            _install(folder, python, install)
            done.touch()
    return python


def _install(folder: Path, python: Path, hint: str) -> None:
    steps = (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "-q", f"leptonai=={VERSION}"],
    )
    # Its requirements contradict the versions that this project is tested with.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    for words in steps:
        try:
            ran = subprocess.run(
                words, capture_output=True, text=True, timeout=_SECONDS, env=environment
            )
        except subprocess.TimeoutExpired:
            unavailable("lepton", f"installing it took longer than {_SECONDS} s", hint)
        if ran.returncode:
            unavailable("lepton", f"it cannot be installed: {ran.stderr[-300:]}", hint)
