"""DockerSDK, ours or the reference's: whichever `tao_sdk` this interpreter has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import docker
import moments
from docker.models.containers import Container

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

    def make(self, count: int) -> list[str]:
        """So many jobs whose containers are made and not started; their names."""
        start = Container.start
        Container.start = lambda *_, **__: None  # of docker-py: the SDK does what it always does
        try:
            self._jobs = [self._submit() for _ in range(count)]
        finally:
            Container.start = start
        return list(map(_name, self._jobs))

    def sweep(self) -> float:
        """The states of these jobs, one call after the other."""
        began = time.monotonic()
        statuses = [self._sdk.get_job_status(job.id) for job in self._jobs]
        took = time.monotonic() - began
        if {status.status for status in statuses} != {"Pending"}:
            raise AssertionError(f"a container that was not started is Pending: {statuses[:3]}")
        return took

    def _submit(self) -> Any:
        return self._sdk.create_job(image=IMAGE, command="sleep 600", gpu_count=0)


def _name(job: Any) -> str:
    return f"tao-job-{job.id}"


def open_in(folder: str) -> Docker:
    return Docker(folder)
