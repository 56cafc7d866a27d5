"""The lab of the SLURM platform: one test's share of a real cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.slurm import SlurmLab
from tao_sdk.models import Job
from tao_sdk.platforms.base import PlatformSDK
from tao_sdk.platforms.conformance import Lab, eventually
from tao_sdk.platforms.slurm import SlurmSDK

_SECRETS = ("ACCESS_KEY", "SECRET_KEY", "HF_TOKEN", "NGC_KEY")
_STORE = ("S3_BUCKET_NAME", "S3_ENDPOINT_URL", "CLOUD_REGION")
_ALIASES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL")


def isolate(monkeypatch: pytest.MonkeyPatch, lab: SlurmPlatformLab) -> None:
    """This process sees the lab's cluster and nothing of the machine's own settings."""
    for name in (*_SECRETS, *_STORE, *_ALIASES):
        monkeypatch.delenv(name, raising=False)
    for name, value in lab.variables().items():
        monkeypatch.setenv(name, value)


class SlurmPlatformLab(Lab):
    """Reached through login hosts of its own, which can be stopped."""

    def __init__(self, folder: Path, slurm: SlurmLab, image: str = "") -> None:
        """Jobs run in `image`; without one on the nodes as they are."""
        super().__init__(folder)
        self.slurm = slurm
        self.image = image
        self.starts = self._make("starts")
        self.offered = self._make("offered")

    def _make(self, name: str) -> Path:
        made = self.slurm.shared / name
        made.mkdir()
        shutil.chown(made, self.slurm.user)
        return made

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self.variables()}

    def variables(self) -> dict[str, str]:
        return {
            **self.slurm.environment(),
            "SLURM_CPUS_PER_TASK": "1",
            "TAO_SDK_STATE_DIR": str(self.folder / "state"),
        }

    def sdk(self) -> SlurmSDK:
        return SlurmSDK(state_file=self.state_file)

    def sdk_source(self) -> str:
        return (
            "from tao_sdk.platforms.slurm import SlurmSDK\n"
            f"sdk = SlurmSDK(state_file={str(self.state_file)!r})"
        )

    def job(self, script: str) -> dict[str, Any]:
        return {"image": self.image, "command": script, "gpu_count": 0}

    def counted_job(self, script: str) -> dict[str, Any]:
        return self.job(f'echo started >> "{self.starts}/$TAO_JOB_ID"; {script}')

    def starts_of(self, job_id: str) -> int:
        path = self.starts / job_id
        return path.read_text().count("started") if path.exists() else 0

    def jobs_in_reality(self) -> set[str]:
        found = {path.name for path in self.starts.iterdir()}
        return found | {path.parent.name for path in self.slurm.shared.glob("jobs/*/submissions")}

    def pending_job(self, sdk: PlatformSDK) -> Job:
        waiting = sdk.create_job(**self.counted_job("true"), partition="closed")
        eventually(lambda: waiting.refresh().message)
        return waiting

    def data_job(self, script: str) -> dict[str, Any]:
        return self.job(script)

    def offer_data(self, name: str, data: bytes) -> str:
        (self.offered / name).write_bytes(data)
        return f"lustre://{self.offered}/{name}"

    def read_result(self, job: Job, name: str) -> bytes:
        return (self.slurm.shared / "results" / job.id / name).read_bytes()

    @property
    def scratch(self) -> str:
        return str(self.slurm.shared / "scratch")

    def submission_steps(self) -> dict[str, str]:
        arm = (
            "import os, signal\n"
            "from tao_sdk.platforms.slurm.ssh import SshTransport\n"
            "die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
            "real = SshTransport.run\n"
        )
        return {
            "before the program is sent": arm + "SshTransport.run = lambda self, program, *a, **k: "
            "die() if program == 'submit' else real(self, program, *a, **k)",
            "after its answer": arm + "SshTransport.run = lambda self, program, *a, **k: "
            "(real(self, program, *a, **k), program == 'submit' and die())[0]",
        }

    def touch_result(self, job: Job, name: str) -> None:
        (self.slurm.shared / "results" / job.id / name).touch()

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
            (self.slurm.shared / "results" / job.id / "tao_result.json").unlink()
            for path in self.slurm.shared.glob(f"jobs/{job.id}/claims/*/exit"):
                path.unlink()

    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        places = (self.folder, self.slurm.shared, self.slurm.cluster.layout.spool)
        for folder, _, files in (entry for place in places for entry in os.walk(place)):
            for path in (Path(folder) / name for name in files):
                if path.is_file():
                    yield str(path), path.read_bytes()

    def end_all(self) -> None:
        """Whatever a test left is cancelled."""
        names = [f"tao-job-{path.name}" for path in self.slurm.shared.glob("jobs/*")]
        arrays = [f"tao-array-{path.name}" for path in self.slurm.shared.glob("jobs/.arrays/*")]
        for name in (*names, *arrays):
            self.slurm.run_as_root("scancel", "-n", name, check=False)
