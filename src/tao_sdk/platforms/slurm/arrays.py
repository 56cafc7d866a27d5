"""Many jobs as one array of Slurm: what is alike, and the files of the whole."""

from __future__ import annotations

import io
import secrets
import tarfile
from collections.abc import Sequence
from typing import NamedTuple

from tao_sdk.platforms.backend import Plan
from tao_sdk.platforms.slurm.batch_script import array_script
from tao_sdk.platforms.slurm.planning import Staged

# Slurm's own default limit is 1001 tasks.
MOST = 1000
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
        Array(secrets.token_hex(8), tuple(found[start : start + MOST]))
        for found in alike.values()
        if len(found) > 1
        for start in range(0, len(found), MOST)
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
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as out:
        for name in (".arrays", array.folder, f"{array.folder}/logs"):
            _add(out, name, None)
        _add(out, f"{array.folder}/list", listed)
        _add(out, f"{array.folder}/array.sbatch", script)
        for index, plan in enumerate(array.plans):
            _add(out, plan.job_id, None)
            plan.payload.add_to(out, f"{plan.job_id}/")
            _add(out, f"{plan.job_id}/array", f"{array.name} {index}\n")
    return buffer.getvalue()


def _shared(staged: Staged) -> tuple[str, ...]:
    return tuple(line for line in staged.directives if not line.startswith(_OWN))


def _add(archive: tarfile.TarFile, name: str, text: str | None) -> None:
    member = tarfile.TarInfo(name)
    if text is None:
        member.type, member.mode = tarfile.DIRTYPE, 0o700
        archive.addfile(member)
    else:
        data = text.encode()
        member.size, member.mode = len(data), 0o600
        archive.addfile(member, io.BytesIO(data))
