"""This machine as a platform: its GPUs, and jobs on it that the store does not know."""

from __future__ import annotations

import os
import pwd
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
from tao_sdk.platforms.gpus.lease_folder import LeasesUnavailableError
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
    folders = settings.get("TAO_GPU_LEASE_DIR")
    try:
        free = look_for_free(folders, [gpu.key for gpu in gpus])
    except LeasesUnavailableError as error:
        yield problem("leases", str(error), "jobs with GPUs wait until then")
        free = None
    for gpu in gpus:
        lease = "" if free is None else ", free" if gpu.key in free else ", leased to a job"
        yield Finding(f"GPU {gpu.index}", f"{gpu.model}{lease}")
    for folder in folders.split(os.pathsep):
        yield _check_lease_folder(Path(folder))


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


def _check_lease_folder(folder: Path) -> Finding:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return Finding("leases", f"{folder} is made by the first job that wants a GPU")
    owner = _name_of(found.st_uid)
    if not stat.S_ISDIR(found.st_mode):
        return problem(
            "leases",
            f"{folder} is not a folder; it belongs to {owner}",
            f"its owner or an administrator can remove it: rm {folder}",
        )
    if stat.S_IMODE(found.st_mode) & 0o1777 != 0o1777:
        return note(
            "leases",
            f"{folder} is not open to all users of this machine: others cannot lease GPUs",
            f"{owner} or an administrator can run: chmod 1777 {folder}",
        )
    if found.st_uid not in (0, os.getuid()):
        return note(
            "leases",
            f"{folder} belongs to {owner}, and an owner can delete leases of other users",
            f"an administrator can run: chown -R root {folder}",
        )
    return Finding("leases", f"{folder}, shared by all users of this machine")


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


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
