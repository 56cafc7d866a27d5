"""The #SBATCH lines of a job, in one fixed order: pure."""

from __future__ import annotations

from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings
from tao_sdk.platforms.slurm.options import SlurmOptions
from tao_sdk.platforms.slurm.resources import Resources


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
    whole_memory: bool,
) -> list[str]:
    """Options for sbatch, without their #SBATCH. `folder` is the job's own.

    `whole_memory`: all memory of the nodes, unless the caller says how much.
    """
    options: SlurmOptions = request.options
    lines = [f"--nodes={resources.nodes}", "--ntasks-per-node=1"]
    if resources.gpus_per_node:
        lines.append(f"--gres=gpu:{resources.gpus_per_node}")
    if resources.nodes > 1:
        lines.append(f"--ntasks={resources.nodes}")
    lines += [f"--cpus-per-task={resources.cpus_per_task}", "--wait-all-nodes=1"]
    memory = options.memory or ("0" if whole_memory else "")
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


def may_requeue(request: JobRequest, cluster: ClusterSettings) -> bool:
    asked = request.options.requeue
    return cluster.requeue if asked is None else bool(asked)
