"""The files of a job, word for word: pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence

from tao_sdk.platforms.remote.framing import assigned
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.slurm.client import PROGRAMS
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings
from tao_sdk.platforms.slurm.job_folder import JobFolder
from tao_sdk.platforms.slurm.options import SlurmOptions
from tao_sdk.platforms.slurm.resources import Resources
from tao_sdk.result_record import SHIM


def partition_of(request: JobRequest, cluster: ClusterSettings) -> str:
    """The keyword wins over the details, and those over the environment."""
    details = request.options.backend_details or {}
    return str(request.options.partition or details.get("partition") or cluster.partition)


def directives(
    request: JobRequest,
    cluster: ClusterSettings,
    resources: Resources,
    *,
    name: str,
    folder: str,
) -> list[str]:
    """Options for sbatch in a fixed order, without their #SBATCH. `folder` is the job's own."""
    options: SlurmOptions = request.options
    lines = [f"--nodes={resources.nodes}", "--ntasks-per-node=1"]
    if resources.gpus_per_node:
        lines.append(f"--gres=gpu:{resources.gpus_per_node}")
    if resources.nodes > 1:
        lines.append(f"--ntasks={resources.nodes}")
    lines += [f"--cpus-per-task={resources.cpus_per_task}", "--wait-all-nodes=1"]
    memory = options.memory or ("0" if is_cosmos(request) else "")  # 0 is all of it
    if memory:
        lines.append(f"--mem={memory}")
    if resources.exclusive:
        lines.append("--exclusive")
    hours, minutes = divmod(resources.time_minutes, 60)
    lines += [f"--time={hours:02d}:{minutes:02d}:00", f"--job-name={name}"]
    if account := options.account or cluster.account:
        lines.append(f"--account={account}")
    if partition := partition_of(request, cluster):
        lines.append(f"--partition={partition}")
    for keyword in ("qos", "constraint", "reservation", "nodelist", "exclude", "dependency"):
        if value := getattr(options, keyword):
            lines.append(f"--{keyword}={value}")
    logs = f"{folder}/slurm-logs/batch-%j"
    lines += [f"--output={logs}.out", f"--error={logs}.err", "--open-mode=append"]
    lines.append(f"--chdir={folder}")
    if mail := options.mail_user or cluster.mail_user:
        lines += ["--mail-type=all", f"--mail-user={mail}"]
    lines.append("--requeue" if may_requeue(request, cluster) else "--no-requeue")
    if resources.warn_seconds:
        lines.append(f"--signal=B:USR1@{resources.warn_seconds}")
    return [*lines, *options.sbatch_extra]


def is_cosmos(request: JobRequest) -> bool:
    return request.network_arch.lower().replace("_", "-") == "cosmos-rl"


def may_requeue(request: JobRequest, cluster: ClusterSettings) -> bool:
    requeue = request.options.requeue
    return cluster.requeue if requeue is None else bool(requeue)


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
    facts = assigned(
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
    return f"#!/bin/bash\n{head}\n{facts}{tasks}\n{PROGRAMS.read('batch')}"


def task_script(
    job_folder: JobFolder, resources: Resources, roles: Sequence[str], directory: str
) -> str:
    """What runs in the container of each node.

    `roles` are those of the nodes, in order; `directory` is where the command starts, "" for the
    image's own.
    """
    go = f"cd {shlex.quote(directory)} || exit 1\n" if directory else ""
    shim = shlex.join(["/bin/sh", "-c", SHIM, "tao-shim"])
    entrypoint = shlex.quote(f"{job_folder.job_dir}/{job_folder.entrypoint}")
    words = shlex.join(["set", "--", str(resources.nodes), *roles])
    return f'#!/bin/sh\n{words}\n{PROGRAMS.read("task")}{go}exec {shim} "$1" {entrypoint}\n'


def array_script(directives: Iterable[str], folder: str) -> str:
    """What sbatch is given for many jobs at once: each task becomes one job of the list."""
    head = "".join(f"#SBATCH {line}\n" for line in directives)
    return f"#!/bin/bash\n{head}\n{assigned({'folder': folder})}{PROGRAMS.read('array')}"


def environment_script(values: Mapping[str, str]) -> str:
    """The job's variables, to be sourced. Holds secrets."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items())
    )


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"
