"""The lab of the Brev platform: one test's account, with an instance that is there already."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.brev import BrevCloud
from lab.docker.images import BUSYBOX
from lab.docker.python_image import python_image
from tao_sdk.models import Job
from tao_sdk.platforms.base import PlatformSDK
from tao_sdk.platforms.brev import BrevSDK
from tao_sdk.platforms.conformance import Lab, eventually

_SECRETS = ("ACCESS_KEY", "SECRET_KEY", "HF_TOKEN", "NGC_KEY", "BREV_API_TOKEN", "BREV_API_KEY")
_STORE = ("S3_BUCKET_NAME", "S3_ENDPOINT_URL", "CLOUD_REGION")
_ALIASES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL")


def isolate(monkeypatch: pytest.MonkeyPatch, lab: BrevLab) -> None:
    """This process sees the lab's Brev and nothing of the machine's own settings."""
    for name in (*_SECRETS, *_STORE, *_ALIASES):
        monkeypatch.delenv(name, raising=False)
    for name, value in lab.variables().items():
        monkeypatch.setenv(name, value)


class BrevLab(Lab):
    """Jobs go to an instance of the name `box`."""

    multi_node = False
    round_trips = 2  # the list of instances, and one program on the one that has all the jobs
    killed_clients = 8
    instance = "box"

    def __init__(self, folder: Path, cloud: BrevCloud) -> None:
        super().__init__(folder)
        self.cloud = cloud
        cloud.make(self.instance)
        self.disk = cloud.folder / "disk"
        self.results = self.disk / "results"
        self.starts = self.disk / "starts"
        self.results.mkdir(parents=True)
        self.starts.mkdir()

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self.variables()}

    def variables(self) -> dict[str, str]:
        return {"PATH": self.cloud.path, "TAO_SDK_STATE_DIR": str(self.folder / "state")}

    def sdk(self) -> BrevSDK:
        return BrevSDK(state_file=self.state_file)

    def sdk_source(self) -> str:
        return (
            "from tao_sdk.platforms.brev import BrevSDK\n"
            f"sdk = BrevSDK(state_file={str(self.state_file)!r})"
        )

    def job(self, script: str) -> dict[str, Any]:
        return {
            "image": BUSYBOX,
            "command": script,
            "gpu_count": 0,
            "instance_id": self.instance,
            "mounts": [f"{self.results}:/results", f"{self.starts}:/starts"],
        }

    def data_job(self, script: str) -> dict[str, Any]:
        return {**self.job(script), "image": python_image(self.cloud.engine)}

    def offer_data(self, name: str, data: bytes) -> str:
        (self.starts / name).write_bytes(data)
        return f"file:///starts/{name}"

    def read_result(self, job: Job, name: str) -> bytes:
        return (self.results / job.id / name).read_bytes()

    @property
    def scratch(self) -> str:
        return "/tmp/scratch"

    def counted_job(self, script: str) -> dict[str, Any]:
        return self.job(f'echo started >> "/starts/$TAO_JOB_ID"; {script}')

    def starts_of(self, job_id: str) -> int:
        path = self.starts / job_id
        return path.read_text().count("started") if path.exists() else 0

    def folder_of(self, job_id: str) -> Path:
        return self.cloud.home(self.instance) / ".tao-sdk" / "jobs" / job_id

    def jobs_in_reality(self) -> set[str]:
        found = {path.name for path in self.starts.iterdir()}
        staged = self.cloud.folder.glob("machines/*/home/.tao-sdk/jobs/*/token")
        return found | {path.parent.name for path in staged}

    def pending_job(self, sdk: PlatformSDK) -> Job:
        holder = sdk.create_job(**{**self.job("sleep 600"), "gpu_count": 2})
        eventually(lambda: holder.refresh().status == "Running")
        waiting = sdk.create_job(**{**self.counted_job("true"), "gpu_count": 1})
        eventually(lambda: "waiting for GPUs" in waiting.refresh().message)
        return waiting

    def submission_steps(self) -> dict[str, str]:
        arm = (
            "import os, signal\n"
            "from tao_sdk.platforms.brev.machine import Machine\n"
            "die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
            "real, copy = Machine.run, Machine.upload\n"
        )
        return {
            "after the copy": arm + "Machine.upload = lambda *a, **k: (copy(*a, **k), die())[0]",
            "before the program": arm + "Machine.run = lambda self, program, *a, **k: "
            "die() if program == 'submit' else real(self, program, *a, **k)",
            "after its answer": arm + "Machine.run = lambda self, program, *a, **k: "
            "(real(self, program, *a, **k), program == 'submit' and die())[0]",
        }

    def touch_result(self, job: Job, name: str) -> None:
        (self.results / job.id / name).touch()

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        with self.cloud.faulty(down=True):
            yield

    def forget(self, job: Job, *, with_results: bool) -> None:
        folder = self.folder_of(job.id)
        eventually((folder / "end").exists)
        self.cloud.engine.docker("rm", f"tao-job-{job.id}")
        folder.rename(self.cloud.folder / f"forgotten-{job.id}")
        if with_results:
            (self.results / job.id / "tao_result.json").unlink()

    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        """Everything but the private files that an instance needs to start a job."""
        places = (self.folder, self.cloud.folder)
        for folder, _, files in (entry for place in places for entry in os.walk(place)):
            for path in (Path(folder) / name for name in files):
                if path.is_file():
                    yield str(path), path.read_bytes()
        engine = self.cloud.engine
        yield "the engine's log", engine.log.read_bytes()
        for container in engine.docker("ps", "-aq", "--filter", "label=tao-sdk-backend").split():
            yield (
                f"container {container}",
                engine.docker("inspect", container, check=False).encode(),
            )
