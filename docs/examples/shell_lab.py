"""The lab of the shell platform: what the conformance suite needs to try it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docs.examples.shell_platform import ShellSDK
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import Lab, eventually
from tao_sdk.platforms.conformance.lab import reference


class ShellLab(Lab):
    """A private root folder."""

    multi_node = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.root, self.starts = folder / "root", folder / "starts"
        self.starts.mkdir()

    def sdk(self) -> ShellSDK:
        return ShellSDK(self.state_file, self.root)

    def sdk_source(self) -> str:
        return (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
            "from docs.examples.shell_platform import ShellSDK\n"
            f"sdk = ShellSDK({str(self.state_file)!r}, {str(self.root)!r})"
        )

    def job(self, script: str) -> dict[str, Any]:
        return {"command": script, "gpu_count": 0}

    def counted_job(self, script: str) -> dict[str, Any]:
        return self.job(f'echo started >> "{self.starts}/$TAO_JOB_ID"; {script}')

    def starts_of(self, job_id: str) -> int:
        path = self.starts / job_id
        return path.read_text().count("started") if path.exists() else 0

    def jobs_in_reality(self) -> set[str]:
        return {path.name for path in self.starts.iterdir()}

    def touch_result(self, job: Job, name: str) -> None:
        (Path(job.results_dir) / name).touch()

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        away = self.root.rename(self.folder / "unmounted")
        try:
            yield
        finally:
            away.rename(self.root)

    def forget(self, job: Job, *, with_results: bool) -> None:
        sdk = self.sdk()
        eventually(lambda: sdk.backend.result_records(reference(sdk, job.id)))
        shutil.rmtree(self.root / "jobs" / job.id)
        if with_results:
            shutil.rmtree(job.results_dir)

    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = Path(folder) / name
                yield str(path), path.read_bytes()
