"""DockerSDK, ours or the reference's: whichever `tao_sdk` this interpreter has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import docker
import moments

from tao_sdk.platforms.docker import DockerSDK

IMAGE = "tao-lab/bash:1"


class Docker:
    def __init__(self, folder: str) -> None:
        self._sdk = DockerSDK(state_file=str(Path(folder) / "state.json"))
        self._daemon = docker.from_env()
        self._jobs: list[Any] = []

    def one(self) -> float:
        """From the call until the job is known to run."""
        began = time.monotonic()
        job = self._submit()
        moments.wait_until(lambda: self._sdk.get_job_status(job.id).status == "Running")
        took = time.monotonic() - began
        # Not by the SDK: how long its cancellation takes is not the question.
        self._daemon.containers.get(_name(job)).remove(force=True)
        return took

    def sweep(self, count: int) -> dict[str, Any]:
        """The states of so many running jobs, one call after the other or all at once."""
        while len(self._jobs) < count:
            self._jobs.append(self._submit())
        ids = [job.id for job in self._jobs]
        began = time.monotonic()
        if hasattr(self._sdk, "get_statuses"):
            statuses = list(self._sdk.get_statuses(ids).values())
        else:
            statuses = [self._sdk.get_job_status(job_id) for job_id in ids]
        took = time.monotonic() - began
        if {status.status for status in statuses} != {"Running"}:
            raise AssertionError(f"not all jobs run: {statuses}")
        return {"seconds": took, "names": list(map(_name, self._jobs))}

    def _submit(self) -> Any:
        return self._sdk.create_job(image=IMAGE, command="sleep 600", gpu_count=0)


def _name(job: Any) -> str:
    return f"tao-job-{job.id}"


def open_in(folder: str) -> Docker:
    return Docker(folder)
