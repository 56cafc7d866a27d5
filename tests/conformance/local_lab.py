"""The lab of the local platform: a private root folder on this machine."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common_lab import DIE, PlatformLab, files_under

from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.local import LocalSDK
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.platforms.sdk import PlatformSDK


class LocalLab(PlatformLab[LocalSDK]):
    sdk_class = LocalSDK
    foreign = ("CUDA_VISIBLE_DEVICES",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.root = folder / "root"
        self.starts = folder / "starts"
        self.starts.mkdir()

    def variables(self) -> dict[str, str]:
        """One GPU is pretended."""
        leases = str(self.folder / "leases")
        return {
            **super().variables(),
            "TAO_LOCAL_GPUS": "1",
            "TAO_LOCAL_ROOT": str(self.root),
            "TAO_GPU_LEASE_DIR": leases,
        }

    def sdk(self) -> LocalSDK:
        return LocalSDK(state_file=self.state_file, work_dir=self.root)

    def sdk_source(self) -> str:
        return (
            "from tao_sdk.platforms.local import LocalSDK\n"
            f"sdk = LocalSDK(state_file={str(self.state_file)!r}, work_dir={str(self.root)!r})"
        )

    def job(self, script: str) -> dict[str, Any]:
        return {"command": script, "gpu_count": 0}

    def read_result(self, job: Job, name: str) -> bytes:
        return (Path(job.results_dir) / name).read_bytes()

    def jobs_in_reality(self) -> set[str]:
        folder = self.root / "jobs"
        found = {path.name for path in folder.iterdir()} if folder.exists() else set()
        return found | {path.name for path in self.starts.iterdir()}

    def pending_job(self, sdk: PlatformSDK) -> Job:
        """Behind a job that has the only GPU."""
        holder = sdk.create_job(command="sleep 600", gpu_count=1)
        eventually(lambda: holder.refresh().status == "Running")
        waiting = sdk.create_job(**{**self.counted_job("true"), "gpu_count": 1})
        eventually(lambda: "position 1" in waiting.refresh().message)
        return waiting

    def snapshot(self) -> object:
        """Every file of the jobs, with what a change would change."""
        return {
            path: (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_size)
            for path in [*self.root.rglob("*"), *(self.folder / "leases").rglob("*")]
        }

    def submission_steps(self) -> dict[str, str]:
        """The spawner starts while the row is written, so its own start is a step as well."""
        arm = f"{DIE}from tao_sdk.platforms.local import spawner\n"
        send = "spawner._send = lambda channel, text: (channel.sendall({}), {}, die())"
        return {
            "before the spawner starts": f"{arm}spawner._Process = die",
            "spawner started": f"{arm}real = spawner._Process\n"
            "spawner._Process = lambda: (real(), die())",
            "folders made": f"{arm}spawner.Spawner.start = die",
            "channel made": f"{arm}spawner.Spawner._hand_over = die",
            "channel handed over": f"{arm}real = spawner.Spawner._hand_over\n"
            "spawner.Spawner._hand_over = lambda *a: (real(*a), die())",
            "half the orders given": arm + send.format("text[:100]", "None"),
            "all but the last byte given": arm + send.format("text[:-1]", "None"),
            "all orders given": arm + send.format("text", "channel.shutdown(1)"),
            "answer read": f"{arm}real = spawner._receive\n"
            "spawner._receive = lambda channel: (real(channel), die())",
        }

    def touch_result(self, job: Job, name: str) -> None:
        (Path(job.results_dir) / name).touch()

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        away = self.folder / "unmounted"
        self.root.rename(away)
        try:
            yield
        finally:
            away.rename(self.root)

    def forget(self, job: Job, *, with_results: bool) -> None:
        folder = JobFolder(self.root / "jobs" / job.id)
        eventually(lambda: (folder.read_state() or {}).get("phase") == "done")
        shutil.rmtree(folder.path)
        if with_results:
            shutil.rmtree(job.results_dir)

    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        return files_under(self.folder)

    def end_all(self) -> None:
        """Whatever a failed test left running is stopped."""
        sdk = self.sdk()
        for job in sdk.list_jobs():
            sdk.cancel_job(job.id)
        sdk.close()
