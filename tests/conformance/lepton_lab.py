"""The lab of the Lepton platform: a played workspace of one test's own."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common_lab import DIE, PlatformLab, files_under, steps_around

from lab.lepton import LeptonServer
from tao_sdk import settings
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.lepton import LeptonSDK
from tao_sdk.platforms.sdk import PlatformSDK


class LeptonLab(PlatformLab[LeptonSDK]):
    """A workspace that runs jobs as processes of this machine."""

    sdk_class = LeptonSDK
    foreign = tuple(name for name in settings.SETTINGS if name.startswith("LEPTON_"))
    round_trips = 3  # a page, an empty one, and jobs that the list does not show yet

    def __init__(self, folder: Path, server: LeptonServer) -> None:
        super().__init__(folder)
        self.server = server
        self.starts = folder / "starts"
        self.starts.mkdir()

    @property
    def results(self) -> Path:
        return self.server.state.volume("lustre") / "team" / "results"

    def variables(self) -> dict[str, str]:
        return {
            **super().variables(),
            **self.server.variables(),
            # As far as anything of this lab is behind.
            "LEPTON_SETTLE_SECONDS": "2",
        }

    def job(self, script: str) -> dict[str, Any]:
        # On shared storage, which only a node group has.
        return {
            "image": "busybox:1.36",
            "command": script,
            "gpu_count": 0,
            "dedicated_node_group": "main",
        }

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

    def snapshot(self) -> object:
        """The jobs and the names of the secrets of the workspace."""
        with self.server.state.lock:
            jobs = [job.describe() for job in self.server.state.jobs.values()]
            return json.loads(json.dumps(jobs)), sorted(self.server.state.secrets)

    def wait_until_finished(self, job: Job) -> None:
        eventually(lambda: self.server.job_of(job.id).completed)

    def submission_steps(self) -> dict[str, str]:
        arm = (
            f"{DIE}os.environ['HF_TOKEN'] = 'made-up-for-a-secret'\n"
            "os.environ['NGC_KEY'] = 'made-up-for-a-key'\n"
            "from tao_sdk.platforms.lepton.submit import Submitter\n"
        )
        return steps_around(arm, "Submitter", ("create_secrets", "create_job"))

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
        yield from files_under(self.folder)
        # Secrets are where Lepton keeps what a container must know: documented.
        yield "the requests", self.server.readable().encode()
        with self.server.state.lock:
            jobs = [job.describe() for job in self.server.state.jobs.values()]
        yield "the jobs of the workspace", json.dumps(jobs).encode()
