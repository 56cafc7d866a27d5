"""The lab of the Lepton platform: a played workspace of one test's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.lepton import LeptonServer
from tao_sdk import settings
from tao_sdk.models import Job
from tao_sdk.platforms.base import PlatformSDK
from tao_sdk.platforms.conformance import Lab, eventually
from tao_sdk.platforms.lepton import LeptonSDK

_STORE = ("S3_BUCKET_NAME", "S3_ENDPOINT_URL", "AWS_ENDPOINT_URL", "CLOUD_REGION")


def isolate(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    """This process sees the lab's workspace and nothing of the machine's own settings."""
    for setting in settings.SETTINGS.values():
        if setting.secret or setting.name.startswith("LEPTON_"):
            for name in (setting.name, *setting.aliases):
                monkeypatch.delenv(name, raising=False)
    for name in _STORE:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


class LeptonLab(Lab):
    """A workspace that runs jobs as processes of this machine."""

    round_trips = 3  # a page, an empty one, and jobs that the list does not show yet

    def __init__(self, folder: Path, server: LeptonServer) -> None:
        super().__init__(folder)
        self.server = server
        self.starts = folder / "starts"
        self.starts.mkdir()

    @property
    def results(self) -> Path:
        return self.server.state.volume("lustre") / "team" / "results"

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self.variables()}

    def variables(self) -> dict[str, str]:
        return {
            **self.server.variables(),
            "TAO_SDK_STATE_DIR": str(self.folder / "state"),
            # As far as anything of this lab is behind.
            "LEPTON_SETTLE_SECONDS": "2",
        }

    def sdk(self) -> LeptonSDK:
        return LeptonSDK(state_file=self.state_file)

    def sdk_source(self) -> str:
        return (
            "from tao_sdk.platforms.lepton import LeptonSDK\n"
            f"sdk = LeptonSDK(state_file={str(self.state_file)!r})"
        )

    def job(self, script: str) -> dict[str, Any]:
        # On shared storage, which only a node group has.
        return {
            "image": "busybox:1.36",
            "command": script,
            "gpu_count": 0,
            "dedicated_node_group": "main",
        }

    def counted_job(self, script: str) -> dict[str, Any]:
        return self.job(f'echo started >> "{self.starts}/$TAO_JOB_ID"; {script}')

    def starts_of(self, job_id: str) -> int:
        path = self.starts / job_id
        return path.read_text().count("started") if path.exists() else 0

    def jobs_in_reality(self) -> set[str]:
        found = {path.name for path in self.starts.iterdir()}
        with self.server.state.lock:
            labels = [job.labels for job in self.server.state.jobs.values()]
        return found | {one["tao-sdk-job-id"] for one in labels if "tao-sdk-job-id" in one}

    def pending_job(self, sdk: PlatformSDK) -> Job:
        asked = {**self.counted_job("true"), "gpu_count": 8, "dedicated_node_group": "full"}
        waiting = sdk.create_job(**asked)
        eventually(lambda: "Queueing" in waiting.refresh().message)
        return waiting

    def data_job(self, script: str) -> dict[str, Any]:
        return self.job(script)

    def offer_data(self, name: str, data: bytes) -> str:
        path = self.folder / "offered" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return f"file://{path}"

    def read_result(self, job: Job, name: str) -> bytes:
        return (self.results / job.id / name).read_bytes()

    def submission_steps(self) -> dict[str, str]:
        arm = (
            "import os, signal\n"
            "os.environ['HF_TOKEN'] = 'made-up-for-a-secret'\n"
            "os.environ['NGC_KEY'] = 'made-up-for-a-key'\n"
            "from tao_sdk.platforms.lepton.submitting import Submitting\n"
            "die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        steps = {}
        for method in ("create_secrets", "create_job"):
            steps[f"before {method}"] = f"{arm}Submitting.{method} = die"
            steps[f"after {method}"] = (
                f"{arm}real = Submitting.{method}\n"
                f"Submitting.{method} = lambda *a, **k: (real(*a, **k), die())[0]"
            )
        return steps

    def touch_result(self, job: Job, name: str) -> None:
        (self.results / job.id / name).touch()

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        with self.server.cut():
            yield

    def forget(self, job: Job, *, with_results: bool) -> None:
        played = self.server.job_of(job.id)
        eventually(lambda: played.completed)
        with self.server.state.lock:
            played.archived = True
            self.server.state.jobs[played.id] = played
            if with_results:
                for worker in played.workers:
                    worker.lines.clear()
        self.server.forgotten.add(played.id)
        if with_results:
            shutil.rmtree(self.results / job.id)

    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        for folder, _, files in os.walk(self.folder):
            for path in (Path(folder) / name for name in files):
                if path.is_file():
                    yield str(path), path.read_bytes()
        # Secrets are where Lepton keeps what a container must know: documented.
        yield "the requests", self.server.readable().encode()
        with self.server.state.lock:
            jobs = [job.describe() for job in self.server.state.jobs.values()]
        yield "the jobs of the workspace", json.dumps(jobs).encode()
