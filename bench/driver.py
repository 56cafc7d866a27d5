"""A long-lived process that measures calls of one tool and answers over a pipe.

The calls are timed inside that process, after its imports, so that neither the start of an
interpreter nor the pipe is in a figure. What it runs lies in `drivers/`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.isolation import ISOLATED, clean_environment
from bench.peers import Environment

_DRIVERS = Path(__file__).parent / "drivers"


class Driver:
    """One such process, started by its first call; works in `folder`, which it makes."""

    def __init__(self, environment: Environment, module: str, folder: Path, **extra: str) -> None:
        self._command = [str(environment.python), ISOLATED, str(_DRIVERS), module, str(folder)]
        self._folder = folder
        self._environment = clean_environment(folder, **extra)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # the end of its input is the end of the driver

    def ask(self, call: str, **arguments: object) -> Any:
        """The driver's answer to one call."""
        self.tell(call, **arguments)
        return self.answer()

    def tell(self, call: str, **arguments: object) -> None:
        """Send a call; `answer` collects what comes of it."""
        print(json.dumps([call, arguments]), file=self.start().stdin, flush=True)

    def answer(self) -> Any:
        process = self.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            said = self._errors.read_text(encoding="utf-8", errors="replace").strip()
            raise RuntimeError(f"the driver ended: {said[-2000:]}")
        return json.loads(line)

    def start(self) -> subprocess.Popen[str]:
        """The process, once it has imported what it needs."""
        if self._process is None:
            self._folder.mkdir(parents=True)
            with open(self._errors, "wb") as errors:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self._folder,
                    env=self._environment,
                    text=True,
                )
            self.answer()
        return self._process

    @property
    def _errors(self) -> Path:
        return self._folder / "driver.err"
