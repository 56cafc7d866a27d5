"""What a platform's test lab must be able to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from tao_sdk.models import Job
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.platforms.submit import job_ref

T = TypeVar("T")


def eventually(check: Callable[[], T], seconds: float = 60.0) -> T:
    """Call `check` until it answers something true; fail after a generous time."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while not (answer := check()):
        assert time.monotonic() < deadline, f"{check} was not true within {seconds:g} s"
        time.sleep(pause)
        pause = min(pause * 1.3, 0.25)
    return answer


def reference(sdk: PlatformSDK, job_id: str) -> JobRef:
    """A job of the store as its backend knows it."""
    row = sdk.store.get_job(job_id)
    assert row is not None
    return job_ref(row)


class Lab(ABC):
    """One platform, private to one test.

    `folder` is scratch space of the test. Jobs are given as shell scripts that need no GPU.
    """

    multi_node = True
    round_trips = 1
    """How many of them one look at any number of jobs may take."""
    killed_clients = 20
    """How many are killed at random moments; fewer where a submission takes seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_file = folder / "state.json"

    # ------------------------------------------------------------------ to be supplied

    @abstractmethod
    def sdk(self) -> PlatformSDK:
        """A new SDK object on `state_file`."""

    @abstractmethod
    def sdk_source(self) -> str:
        """Python text that defines `sdk`, the same object, in another process."""

    @abstractmethod
    def job(self, script: str) -> dict[str, Any]:
        """The keywords of `create_job` that run a shell script without GPUs."""

    @abstractmethod
    def counted_job(self, script: str) -> dict[str, Any]:
        """The same, for a job whose starts `starts_of` can count."""

    @abstractmethod
    def starts_of(self, job_id: str) -> int:
        """How many times such a job really began to run."""

    @abstractmethod
    def jobs_in_reality(self) -> set[str]:
        """Ids of all jobs that the platform has or had, whatever any store says."""

    @abstractmethod
    def touch_result(self, job: Job, name: str) -> None:
        """Create an empty file in the job's results folder, as the job sees it."""

    @abstractmethod
    def unreachable(self) -> AbstractContextManager[None]:
        """While this is open the platform cannot be asked; jobs go on."""

    @abstractmethod
    def forget(self, job: Job, *, with_results: bool) -> None:
        """Make the platform forget an ended job, as its own cleaner would."""

    @abstractmethod
    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        """Everything the platform and the store keep on disk or show to others: (name, bytes)."""

    def pending_job(self, sdk: PlatformSDK) -> Job | None:
        """A counted job that waits for something; None where every job starts at once."""
        del sdk
        return None

    def data_job(self, script: str) -> dict[str, Any] | None:
        """Like `job`, with a Python for the runner; None where this lab has no such jobs."""
        del script
        return None

    def offer_data(self, name: str, data: bytes) -> str:
        """A URI under which such a job can stage these bytes."""
        raise NotImplementedError

    def read_result(self, job: Job, name: str) -> bytes:
        """A file of the job's results."""
        raise NotImplementedError

    @property
    def scratch(self) -> str:
        """A folder, as such a job sees it, that is not its results folder."""
        return str(self.folder / "scratch")

    def snapshot(self) -> object:
        """All that the platform holds of this lab's jobs; None if the lab cannot tell."""
        return None

    def wait_until_finished(self, job: Job) -> None:
        """Wait until the platform does nothing more for a job that has ended."""
        del job

    def submission_steps(self) -> Mapping[str, str]:
        """Steps inside this platform's `submit`: name -> Python text that makes the process that
        runs it die there. `sdk` is defined.
        """
        return {}

    # ------------------------------------------------------------------ common to all labs

    def environment(self) -> Mapping[str, str]:
        """The environment of other processes of this lab."""
        return os.environ

    def start_python(self, source: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python program that finds `sdk` (this lab's) defined."""
        program = f"{self.sdk_source()}\n{source}"
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=dict(self.environment()),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_python(self, source: str, *arguments: str, seconds: float = 120) -> str:
        """Run such a program to its end and return what it printed."""
        process = self.start_python(source, *arguments)
        out, err = process.communicate(timeout=seconds)
        assert process.returncode == 0, err
        return out

    def run_python_json(self, source: str, *arguments: str, seconds: float = 120) -> Any:
        return json.loads(self.run_python(source, *arguments, seconds=seconds))


def visible_command_lines() -> str:
    """What any user of this machine can see of running programs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" "))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return b"\n".join(found).decode("utf-8", "replace")
