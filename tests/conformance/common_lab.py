"""What the labs of several platforms have in common."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from lab.docker.images import BUSYBOX
from tao_sdk import settings
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import Lab
from tao_sdk.platforms.sdk import PlatformSDK

SDK = TypeVar("SDK", bound=PlatformSDK)

_STORE = ("S3_BUCKET_NAME", "S3_ENDPOINT_URL", "CLOUD_REGION")
DIE = "import os, signal\ndie = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
"""Python text: `die` is a function that kills its process."""


class PlatformLab(Lab, Generic[SDK]):
    """Results and starts of jobs are files that this process can read, too."""

    sdk_class: type[SDK]
    foreign: tuple[str, ...] = ()
    """More settings that the machine may have and the lab must not see."""
    results: Path
    starts: Path

    def variables(self) -> dict[str, str]:
        """What makes a process see this lab."""
        return {"TAO_SDK_STATE_DIR": str(self.folder / "state")}

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self.variables()}

    def sdk(self) -> SDK:
        return self.sdk_class(state_file=self.state_file)

    def sdk_source(self) -> str:
        name = self.sdk_class.__name__
        return (
            f"from {self.sdk_class.__module__} import {name}\n"
            f"sdk = {name}(state_file={str(self.state_file)!r})"
        )

    @property
    def starts_in_job(self) -> str:
        """`starts` as a job sees it."""
        return str(self.starts)

    def counted_job(self, script: str) -> dict[str, Any]:
        return self.job(f'echo started >> "{self.starts_in_job}/$TAO_JOB_ID"; {script}')

    def starts_of(self, job_id: str) -> int:
        path = self.starts / job_id
        return path.read_text().count("started") if path.exists() else 0

    def data_job(self, script: str) -> dict[str, Any]:
        return self.job(script)

    def offer_data(self, name: str, data: bytes) -> str:
        path = self.folder / "offered" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return f"file://{path}"

    def read_result(self, job: Job, name: str) -> bytes:
        return (self.results / job.id / name).read_bytes()

    def touch_result(self, job: Job, name: str) -> None:
        (self.results / job.id / name).touch()

    def end_all(self) -> None:
        """Whatever a test left is ended."""


class ContainerLab(PlatformLab[SDK]):
    """Jobs in containers find their results and starts mounted."""

    @property
    def mounts(self) -> list[str]:
        return [f"{self.results}:/results", f"{self.starts}:/starts"]

    @property
    def starts_in_job(self) -> str:
        return "/starts"

    def job(self, script: str) -> dict[str, Any]:
        return {"image": BUSYBOX, "command": script, "gpu_count": 0, "mounts": self.mounts}

    def offer_data(self, name: str, data: bytes) -> str:
        (self.starts / name).write_bytes(data)
        return f"file:///starts/{name}"

    @property
    def scratch(self) -> str:
        return "/tmp/scratch"


AnyLab = TypeVar("AnyLab", bound=PlatformLab[Any])


@contextlib.contextmanager
def isolated(monkeypatch: pytest.MonkeyPatch, lab: AnyLab) -> Iterator[AnyLab]:
    """The lab of one test, which this process sees; what the test leaves there is ended."""
    isolate(monkeypatch, lab)
    try:
        yield lab
    finally:
        lab.end_all()


def isolate(monkeypatch: pytest.MonkeyPatch, lab: PlatformLab[Any]) -> None:
    """This process sees the lab and nothing of the machine's own settings."""
    for setting in settings.SETTINGS.values():
        if setting.secret or setting.name in (*_STORE, *lab.foreign):
            for name in (setting.name, *setting.aliases):
                monkeypatch.delenv(name, raising=False)
    for name in lab.foreign:  # some are of other programs
        monkeypatch.delenv(name, raising=False)
    for name, value in lab.variables().items():
        monkeypatch.setenv(name, value)


def steps_around(arm: str, owner: str, methods: Iterable[str]) -> dict[str, str]:
    """Submission steps: before and after each method of the class that `arm` imports."""
    steps = {}
    for method in methods:
        steps[f"before {method}"] = f"{arm}{owner}.{method} = die"
        steps[f"after {method}"] = (
            f"{arm}real = {owner}.{method}\n"
            f"{owner}.{method} = lambda *a, **k: (real(*a, **k), die())[0]"
        )
    return steps


def steps_around_program(arm: str, owner: str) -> dict[str, str]:
    """The same, where the method `run` of that class has a far program submit."""
    run = f"{arm}real = {owner}.run\n{owner}.run = lambda self, program, *a, **k: "
    return {
        "before the program": run
        + "die() if program == 'submit' else real(self, program, *a, **k)",
        "after its answer": run
        + "(real(self, program, *a, **k), program == 'submit' and die())[0]",
    }


def files_under(*places: Path) -> Iterator[tuple[str, bytes]]:
    """Artefacts: every file of these folders."""
    for folder, _, files in (entry for place in places for entry in os.walk(place)):
        for path in (Path(folder) / name for name in files):
            if path.is_file():
                yield str(path), path.read_bytes()
