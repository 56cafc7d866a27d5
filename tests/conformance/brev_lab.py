"""The lab of the Brev platform: one test's account, with an instance that is there already."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common_lab import DIE, ContainerLab, files_under, steps_around_program

from lab.brev import BrevCloud
from lab.docker.python_image import python_image
from tao_sdk.models import Job
from tao_sdk.platforms.brev import BrevSDK
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.sdk import PlatformSDK


class BrevLab(ContainerLab[BrevSDK]):
    """Jobs go to an instance of the name `box`."""

    sdk_class = BrevSDK
    foreign = ("BREV_API_KEY",)
    multi_node = False
    # The list of instances, and one program on the one that has all the jobs; another one there if
    # some of them ended or lost their supervisor, after a new list if the first is old by then.
    round_trips = 4
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

    def variables(self) -> dict[str, str]:
        return {**super().variables(), "PATH": self.cloud.path}

    def job(self, script: str) -> dict[str, Any]:
        return {**super().job(script), "instance_id": self.instance}

    def data_job(self, script: str) -> dict[str, Any]:
        return {**self.job(script), "image": python_image(self.cloud.engine)}

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

    def snapshot(self) -> object:
        """The instances, their files, and the containers of this lab's jobs in full."""
        engine, machines = self.cloud.engine, self.cloud.folder / "machines"
        files = {
            str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in sorted(machines.glob("*/home/.tao-sdk/**/*"))
            if path.suffix != ".new"  # a supervisor replaces files by a rename
        }
        there = set(engine.docker("ps", "-a", "--format", "{{.Names}}").split())
        names = sorted(there & {f"tao-job-{job_id}" for job_id in self.jobs_in_reality()})
        described = json.loads(engine.docker("inspect", *names)) if names else []
        for container in described:
            container["Mounts"].sort(key=lambda mount: mount["Destination"])
        return sorted(self.cloud.names()), files, described

    def submission_steps(self) -> dict[str, str]:
        arm = f"{DIE}from tao_sdk.platforms.brev.machine import Machine\n"
        copy = "copy = Machine.upload\nMachine.upload = lambda *a, **k: (copy(*a, **k), die())[0]"
        return {"after the copy": arm + copy, **steps_around_program(arm, "Machine")}

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
        yield from files_under(self.folder, self.cloud.folder)
        engine = self.cloud.engine
        yield "the engine's log", engine.log.read_bytes()
        for container in engine.docker("ps", "-aq", "--filter", "label=tao-sdk-backend").split():
            yield (
                f"container {container}",
                engine.docker("inspect", container, check=False).encode(),
            )
