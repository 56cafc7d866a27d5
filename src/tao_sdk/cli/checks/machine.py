"""This machine as a platform: its GPUs, and jobs on it that the store does not know."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from tao_sdk import settings
from tao_sdk.cli.checks.findings import Finding, note, problem
from tao_sdk.cli.checks.state import usable_store
from tao_sdk.cli.session import Place
from tao_sdk.job_store import JobStore
from tao_sdk.models import JobState
from tao_sdk.platforms.gpus.discovery import discover
from tao_sdk.platforms.gpus.leases import look_for_free
from tao_sdk.platforms.local.job_files import JobFolder, LocalJob
from tao_sdk.platforms.local.observe import snapshot
from tao_sdk.platforms.local.sdk import LocalSDK
from tao_sdk.platforms.local.status import interpret
from tao_sdk.platforms.local.virtualenv import VirtualEnvSDK

PROGRAMS = {
    "docker": "the docker platform",
    "ssh": "remote docker and slurm",
    "sbatch": "slurm, on its login node",
    "kubectl": "nothing, but handy with kubernetes",
    "brev": "the brev platform",
}
"""Program -> what needs it."""


def check_gpus() -> Iterator[Finding]:
    gpus = discover()
    if not gpus:
        yield Finding("GPUs", "none found: jobs run with --gpus 0")
        return
    folder = Path(settings.get("TAO_GPU_LEASE_DIR"))
    free = look_for_free(folder, [gpu.key for gpu in gpus])
    for gpu in gpus:
        lease = "free" if gpu.key in free else "leased to a job"
        yield Finding(f"GPU {gpu.index}", f"{gpu.model}, {lease}")
    yield from _check_lease_folder(folder)


def check_orphans(place: Place) -> Iterator[Finding]:
    """Job folders that no job of the store belongs to. Listed, never touched."""
    with usable_store(place) as store:
        found = False
        for root in (LocalSDK().work_dir, VirtualEnvSDK().work_dir):
            for folder in _unknown(root, store):
                found = True
                yield note(
                    "folder",
                    f"{folder} ({_state_of(root, folder)}) belongs to no job of this store",
                    "another state file may know it; if none does, look into it and remove it",
                )
    if not found:
        yield Finding("folders", "every local job belongs to a job of the store")


def check_programs() -> Iterator[Finding]:
    for program, needed_by in PROGRAMS.items():
        path = shutil.which(program)
        if path is None:
            yield note(program, f"not on PATH; needed by {needed_by}")
        else:
            yield Finding(program, path)


def _check_lease_folder(folder: Path) -> Iterator[Finding]:
    if not folder.exists():
        yield Finding("leases", f"{folder} is made by the first job that wants a GPU")
        return
    mode = folder.lstat().st_mode
    if not stat.S_ISDIR(mode):
        yield problem("leases", f"{folder} is not a folder", "set TAO_GPU_LEASE_DIR")
    elif stat.S_IMODE(mode) & 0o1777 != 0o1777:
        yield note(
            "leases",
            f"{folder} is not open to all users of this machine: others cannot lease GPUs",
            f"chmod 1777 {folder}",
        )
    else:
        yield Finding("leases", f"{folder}, shared by all users of this machine")


def _unknown(root: Path, store: JobStore | None) -> list[Path]:
    jobs = root / "jobs"
    if not jobs.is_dir():
        return []
    folders = {
        path.name: path
        for path in sorted(jobs.iterdir())
        if path.is_dir() and not path.name.startswith(".")
    }
    known = store.jobs_by_id(list(folders)) if store is not None else {}
    return [path for name, path in folders.items() if name not in known]


def _state_of(root: Path, folder: Path) -> str:
    job = LocalJob(folder.name, JobFolder(folder), root / "results" / folder.name, 1, "")
    return str(interpret(snapshot(job)).state or JobState.UNKNOWN)
