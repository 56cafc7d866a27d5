"""A shell as the seed documents have one: a home, and in it a bank that was installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BANK = "${TAO_SKILL_BANK_PATH:-~/tao-skills-external}"


class Shell:
    """A shell with a home of its own, in which the bank was installed."""

    def __init__(self, home: Path, program: str, *, exported: bool) -> None:
        self._program = program
        folder = home / ("bank" if exported else "tao-skills-external")
        # Nothing of a virtual environment: what makes the scripts run is in the scripts.
        self.environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        words = [sys.executable, "-m", "tao_sdk.cli", "bank", "install", str(folder)]
        subprocess.run(words, check=True, capture_output=True, timeout=60, env=os.environ)
        if exported:
            self.environment["TAO_SKILL_BANK_PATH"] = str(folder)

    def run(self, script: str, code: int = 0, *, stdout: bool = False) -> str:
        """What is printed: on stdout, or where the code is not 0 on stderr."""
        done = subprocess.run(
            [self._program, "-c", script],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code and not stdout else done.stdout
