"""The files of a job, word for word: pure."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tao_sdk.platforms.slurm.job_folder import JobFolder
from tao_sdk.platforms.slurm.resources import Resources
from tao_sdk.result_record import SHIM

_PROGRAMS = Path(__file__).parent / "programs"


def batch_script(
    directives: Iterable[str],
    job_folder: JobFolder,
    token: str,
    resources: Resources,
    tasks: str,
    *,
    may_requeue: bool,
    stop_seconds: float,
) -> str:
    """What sbatch is given: directives, facts, and the same body for every job."""
    facts = _assign(
        {
            "job_id": job_folder.job_id,
            "job_dir": job_folder.job_dir,
            "results_root": job_folder.results_root,
            "token": token,
            "nodes": str(resources.nodes),
            "gpus": str(resources.gpus_per_node),
            "may_requeue": "yes" if may_requeue else "no",
            "stop_seconds": f"{stop_seconds:g}",
            "warn_seconds": str(resources.warn_seconds),
        }
    )
    head = "".join(f"#SBATCH {line}\n" for line in directives)
    return f"#!/bin/bash\n{head}\n{facts}{tasks}\n{_read('batch')}"


def task_script(
    job_folder: JobFolder, resources: Resources, roles: Sequence[str], directory: str
) -> str:
    """What runs in the container of each node.

    `roles` are those of the nodes, in order; `directory` is where, "" where the image says.
    """
    go = f"cd {shlex.quote(directory)} || exit 1\n" if directory else ""
    shim = shlex.join(["/bin/sh", "-c", SHIM, "tao-shim"])
    entrypoint = shlex.quote(f"{job_folder.job_dir}/{job_folder.entrypoint}")
    words = shlex.join(["set", "--", str(resources.nodes), *roles])
    return f'#!/bin/sh\n{words}\n{_read("task")}{go}exec {shim} "$1" {entrypoint}\n'


def array_script(directives: Iterable[str], folder: str) -> str:
    """What sbatch is given for many jobs at once: each task becomes one job of the list."""
    head = "".join(f"#SBATCH {line}\n" for line in directives)
    return f"#!/bin/bash\n{head}\n{_assign({'folder': folder})}{_read('array')}"


def environment_script(values: Mapping[str, str]) -> str:
    """The job's variables, to be sourced. Holds secrets."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items())
    )


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"


def _assign(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


@functools.cache
def _read(name: str) -> str:
    return (_PROGRAMS / f"{name}.sh").read_text(encoding="utf-8")
