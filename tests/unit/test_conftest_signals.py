"""The suite gives the same answers under nohup, whose children ignore SIGHUP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROBE = """
import signal, subprocess, sys
def test_children_have_the_usual_signals():
    code = "import signal; print([signal.getsignal(n) == signal.SIG_IGN for n in {numbers}])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert said.strip() == "[False, False, False]", said
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_the_parent_ignores_is_undone(tmp_path: Path, workers: str) -> None:
    numbers = [int(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)]
    (tmp_path / "conftest.py").write_bytes((TESTS / "conftest.py").read_bytes())
    (tmp_path / "test_probe.py").write_text(PROBE.format(numbers=numbers))

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=ignore,
    )
    assert done.returncode == 0, done.stdout + done.stderr
