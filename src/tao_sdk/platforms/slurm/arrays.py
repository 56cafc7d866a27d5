"""Many jobs as one array of Slurm: what is alike, and the files of the whole."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from tao_sdk.platforms.backend import Plan
from tao_sdk.platforms.common.archives import Member, pack
from tao_sdk.platforms.slurm.batch_script import array_script
from tao_sdk.platforms.slurm.plan import Staged

# Slurm's own default limit is 1001 tasks.
MAX_TASKS = 1000
_OWN = ("--job-name=", "--output=", "--error=", "--chdir=")


class Array(NamedTuple):
    """Jobs that ask for the same, submitted by one call."""

    token: str
    plans: tuple[Plan, ...]

    @property
    def name(self) -> str:
        return f"tao-array-{self.token}"

    @property
    def folder(self) -> str:
        """Within the folder of all jobs."""
        return f".arrays/{self.token}"


def group(plans: Sequence[Plan]) -> list[Array]:
    """The arrays among these plans; a job that is like no other is left out."""
    alike: dict[tuple[str, ...], list[Plan]] = {}
    for plan in plans:
        alike.setdefault(_shared(plan.payload), []).append(plan)
    return [
        Array(secrets.token_hex(8), tuple(found[start : start + MAX_TASKS]))
        for found in alike.values()
        if len(found) > 1
        for start in range(0, len(found), MAX_TASKS)
    ]


def archive(array: Array, base: str) -> bytes:
    """The files of all jobs and of the array, to be unpacked in the folder of all jobs."""
    jobs = f"{base}/jobs"
    folder = f"{jobs}/{array.folder}"
    listed = "".join(f"{jobs}/{plan.job_id}\n" for plan in array.plans)
    script = array_script(
        [
            *_shared(array.plans[0].payload),
            f"--job-name={array.name}",
            f"--output={folder}/logs/batch-%A_%a.out",
            f"--error={folder}/logs/batch-%A_%a.err",
            f"--chdir={folder}",
            f"--array=0-{len(array.plans) - 1}",
        ],
        folder,
    )
    members = [Member(name) for name in (".arrays", array.folder, f"{array.folder}/logs")]
    members.append(Member(f"{array.folder}/list", listed))
    members.append(Member(f"{array.folder}/array.sbatch", script))
    for index, plan in enumerate(array.plans):
        members.append(Member(plan.job_id))
        members += plan.payload.members(f"{plan.job_id}/")
        members.append(Member(f"{plan.job_id}/array", f"{array.name} {index}\n"))
    return pack(members)


def _shared(staged: Staged) -> tuple[str, ...]:
    return tuple(line for line in staged.directives if not line.startswith(_OWN))
