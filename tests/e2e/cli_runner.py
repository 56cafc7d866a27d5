"""`tao-sdk` as its users run it: real processes, on the local platform, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tao_sdk

SOURCE = str(Path(tao_sdk.__file__).parent.parent)
PATIENCE = 60.0


class Cli:
    """`tao-sdk` with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TAO_")},
            "PYTHONPATH": SOURCE,
            "TAO_SDK_STATE_DIR": str(folder / "state"),
            "TAO_GPU_LEASE_DIR": str(folder / "leases"),
            "TAO_GRACE_SECONDS": "5",
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tao_sdk.cli", *words]

    def start(self, *words: str, **more: object) -> subprocess.Popen[str]:
        settings: dict[str, object] = {
            "cwd": self.folder,
            "env": self.environment,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        process: subprocess.Popen[str] = subprocess.Popen(
            self.command(*words),
            **{**settings, **more},  # type: ignore[call-overload]  # JSON, of whatever shape
        )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """End what a failed test left running."""
        for process in self._started:
            process.kill()
            process.wait()

    def __call__(self, *words: str, code: int = 0, **more: object) -> str:
        """Run to the end, insist on the exit code, return stdout."""
        return self.both(*words, code=code, **more)[0]

    def both(self, *words: str, code: int = 0, **more: object) -> tuple[str, str]:
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in err
        return out, err

    def documents(self, *words: str, code: int = 0) -> list[dict[str, object]]:
        return [json.loads(line) for line in self("--json", *words, code=code).splitlines()]

    def submit(self, *words: str) -> str:
        """A detached job without GPUs and without a watcher; its id."""
        return self("run", "-d", "--no-watch", "--gpus", "0", *words).strip()

    def state_of(self, job: str) -> str:
        [found] = self.documents("status", job)[0]["jobs"]  # type: ignore[attr-defined]  # JSON, of whatever shape
        return str(found["status"])


@contextmanager
def clean_cli(folder: Path) -> Iterator[Cli]:
    """A `Cli` in this folder; leaves no process and no job behind."""
    made = Cli(folder)
    yield made
    made.stop()
    left = made("-q", "ls", "-a", "-p", "local", "-s", "pending", "-s", "running").split()
    if left:
        made("cancel", *left)


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.05)
