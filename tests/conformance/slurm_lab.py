"""The lab of the SLURM platform: one test's share of a real cluster."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common_lab import DIE, PlatformLab, files_under, steps_around_program

from lab.slurm import SlurmLab
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.platforms.slurm import SlurmSDK


class SlurmPlatformLab(PlatformLab[SlurmSDK]):
    """Reached through login hosts of its own, which can be stopped."""

    sdk_class = SlurmSDK

    def __init__(self, folder: Path, slurm: SlurmLab, image: str = "") -> None:
        """Jobs run in `image`; without one on the nodes as they are."""
        super().__init__(folder)
        self.slurm = slurm
        self.image = image
        self.results = slurm.shared / "results"
        self.starts = self._make("starts")
        self.offered = self._make("offered")

    def _make(self, name: str) -> Path:
        made = self.slurm.shared / name
        made.mkdir()
        shutil.chown(made, self.slurm.user)
        return made

    def variables(self) -> dict[str, str]:
        return {
            **super().variables(),
            **self.slurm.environment(),
            "SLURM_CPUS_PER_TASK": "1",
        }

    def job(self, script: str) -> dict[str, Any]:
        return {"image": self.image, "command": script, "gpu_count": 0}

    def jobs_in_reality(self) -> set[str]:
        found = {path.name for path in self.starts.iterdir()}
        return found | {path.parent.name for path in self.slurm.shared.glob("jobs/*/submissions")}

    def pending_job(self, sdk: PlatformSDK) -> Job:
        waiting = sdk.create_job(**self.counted_job("true"), partition="closed")
        eventually(lambda: waiting.refresh().message)
        return waiting

    def offer_data(self, name: str, data: bytes) -> str:
        (self.offered / name).write_bytes(data)
        return f"lustre://{self.offered}/{name}"

    @property
    def scratch(self) -> str:
        return str(self.slurm.shared / "scratch")

    def snapshot(self) -> object:
        """What Slurm and the shared folder hold of this lab's jobs.

        Without ended jobs, which Slurm forgets by itself meanwhile, and without jobs of other
        labs on the same cluster: those work in other folders.
        """
        shared, queue = str(self.slurm.shared), ("squeue", "-h", "-r", "-u", self.slurm.user)
        queued = self.slurm.run_as_user(*queue, "-S", "i", "-o", "%Z/|%i|%T|%N")
        return (
            self.slurm.run_as_user("find", shared, "-printf", "%P %s %m %T@\n"),
            [line for line in queued.splitlines() if line.startswith(f"{shared}/")],
        )

    def wait_until_finished(self, job: Job) -> None:
        """Its record is there before Slurm has ended its script and written the last files."""
        name = f"tao-job-{job.id}"
        eventually(lambda: not self.slurm.run_as_user("squeue", "-h", "-n", name))

    def submission_steps(self) -> dict[str, str]:
        arm = f"{DIE}from tao_sdk.platforms.slurm.client import SshTransport\n"
        return steps_around_program(arm, "SshTransport")

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        self.slurm.stop_sshd()
        try:
            yield
        finally:
            self.slurm.start_sshd()

    def forget(self, job: Job, *, with_results: bool) -> None:
        self.slurm.forget(f"tao-job-{job.id}")
        if with_results:
            (self.results / job.id / "tao_result.json").unlink()
            for path in self.slurm.shared.glob(f"jobs/{job.id}/claims/*/exit"):
                path.unlink()

    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        spool = self.slurm.cluster.layout.spool
        yield from files_under(self.folder, self.slurm.shared, spool)

    def end_all(self) -> None:
        """Whatever a test left is cancelled."""
        names = [f"tao-job-{path.name}" for path in self.slurm.shared.glob("jobs/*")]
        arrays = [f"tao-array-{path.name}" for path in self.slurm.shared.glob("jobs/.arrays/*")]
        for name in (*names, *arrays):
            self.slurm.run_as_root("scancel", "-n", name, check=False)
