"""Runs what `build_entrypoint` makes as a container would: with bash, in a clean folder, with an
environment that holds nothing but what a platform sets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tao_sdk.process_identity import start_time
from tao_sdk.result_record import ResultRecord
from tao_sdk.script_runner import build_entrypoint

JOB = "job-1"
PATH = "/usr/local/bin:/usr/bin:/bin"


def entrypoint(*, quietly: bool = True, **asked: Any) -> str:
    """The command; its warnings are for the tests that are about them."""
    with warnings.catch_warnings():
        if quietly:
            warnings.simplefilter("ignore")
        return build_entrypoint(**asked)["command"]


def until(condition: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds:g} seconds: {what}")


@dataclass(frozen=True)
class Ended:
    """How a container ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """The runner's lines for people."""
        return [
            line.partition(": ")[2]
            for line in self.err.splitlines()
            if line.startswith("tao-runner: ")
        ]

    @property
    def error(self) -> str:
        """What the runner says went wrong; "" if nothing."""
        return "\n".join(line for line in self.said if line.startswith("error: "))

    def progress(self, stage: str) -> dict[str, Any]:
        """The last line for programs about a stage."""
        lines = re.findall(r"^tao-progress: (.*)$", self.err, re.MULTILINE)
        return [found for found in map(json.loads, lines) if found["stage"] == stage][-1]


@dataclass
class Container:
    """A place where one job runs, as often as it is started."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    """Beside PATH and the job's name; the storage that is not a mount by default."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cwd.mkdir(exist_ok=True)
        self._running: list[subprocess.Popen[str]] = []

    @property
    def cwd(self) -> Path:
        return self.folder / "workspace"

    @property
    def root(self) -> Path:
        """What would be /results."""
        return self.folder / "results"

    @property
    def work(self) -> Path:
        """The job's folder."""
        return self.root / self.env.get("TAO_JOB_ID", JOB)

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": PATH,
            "HOME": str(self.folder),
            "TAO_JOB_ID": JOB,
            "TAO_WORK_ROOT": str(self.root),
            **self.env,
            **(env or {}),
        }

    def start(self, command: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start it as a platform does, as the leader of a group; `end` or `stop` it."""
        process = subprocess.Popen(
            ["bash", "-c", command],
            env=self.environment(env),
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def end(self, process: subprocess.Popen[str], seconds: float = 60) -> Ended:
        """Wait for the end of what was started."""
        out, err = process.communicate(timeout=seconds)
        self._running.remove(process)
        return Ended(process.returncode, out, err)

    def run(
        self,
        command: str = "",
        env: Mapping[str, str] | None = None,
        seconds: float = 60,
        **asked: Any,
    ) -> Ended:
        """Build the entrypoint, unless `asked` is empty, and run it to its end."""
        text = entrypoint(command=command, **asked) if asked else command
        return self.end(self.start(text, env), seconds)

    def successful(self, command: str = "", **asked: Any) -> Ended:
        """Run, and complain with all that was said unless the exit code is 0."""
        ended = self.run(command, **asked)
        assert ended.code == 0, ended.err
        return ended

    def record(self, rank: int = 0) -> dict[str, Any]:
        """The result record, which must be one that clients understand."""
        name = f"tao_result.{rank}.json" if rank else "tao_result.json"
        text = (self.work / name).read_text()
        assert ResultRecord.parse(text, self.work.name)
        record: dict[str, Any] = json.loads(text)
        return record

    def close(self) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@contextlib.contextmanager
def container(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[Container]:
    """A container that leaves no process behind."""
    made = Container(folder, dict(env or {}))
    try:
        yield made
    finally:
        made.close()


def gone(pid: int) -> bool:
    return start_time(pid) is None


def names_in(folder: str | Path) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
