"""What is sent to the server: the job word for word, and its secrets. Pure.

Everything that the caller passes as environment, and every credential, goes into secrets of the
workspace; the job has their names. An empty value is no secret, and the server takes none. A job
that has none is given one: without its secrets it cannot start, which `settle` relies on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tao_sdk.platforms.lepton import command, naming
from tao_sdk.platforms.lepton.options import LeptonOptions
from tao_sdk.platforms.lepton.shapes import Choice
from tao_sdk.platforms.lepton.volumes import Place
from tao_sdk.platforms.request import JobRequest

_NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "void"}


class ResolvedJob(NamedTuple):
    """What was found out, beside what was asked for."""

    job_id: str
    token: str
    made_at: int
    choice: Choice
    mounts: tuple[Place, ...]
    results_root: str
    credentials: Mapping[str, str]
    runner: Mapping[str, str]
    pull_secrets: tuple[str, ...]


class Objects(NamedTuple):
    """What a submission makes. Holds secrets: never printed, never stored."""

    job: dict[str, Any]
    secrets: tuple[dict[str, str], ...]
    makes_pull_secret: bool = False

    def shown(self) -> dict[str, str]:
        """For a person: the job as it is, secrets by name."""
        told = {"job": json.dumps(self.job, indent=2, ensure_ascii=False)}
        told["secrets of the workspace"] = "\n".join(one["name"] for one in self.secrets)
        if self.makes_pull_secret:
            told["pull secret"] = f"{naming.PULL_SECRET}, for nvcr.io, from NGC_KEY"
        return told


def build(request: JobRequest, settled: ResolvedJob) -> Objects:
    """The job and its secrets."""
    values = secret_environment(request, settled)
    if not any(values.values()):
        values[naming.GATE] = settled.token
    names = {name: str(_secret_name(settled, name)) for name, value in values.items() if value}
    secrets = tuple(
        {"name": names[name], "value": value, "visibility": "private"}
        for name, value in values.items()
        if value
    )
    plain = {
        **{name: "" for name, value in values.items() if not value},
        **plain_environment(request, settled),
    }
    envs: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in plain.items()]
    envs += [
        {"name": name, "value_from": {"secret_name_ref": secret}} for name, secret in names.items()
    ]
    return Objects(_job(request, settled, envs), secrets)


def secret_environment(request: JobRequest, settled: ResolvedJob) -> dict[str, str]:
    """What the container finds set, and nobody else may read."""
    own = {name: value.reveal() for name, value in request.env.items()}
    return {**settled.credentials, **own}


def plain_environment(request: JobRequest, settled: ResolvedJob) -> dict[str, str]:
    """What the container finds set, and everybody may read; yours wins where it may."""
    env = dict(settled.runner)
    if settled.choice.gpus == 0:
        env.update(_NO_GPUS)
    if request.num_nodes > 1:
        env["MASTER_PORT"] = command.DEFAULT_PORT
    env = {name: value for name, value in env.items() if name not in request.env}
    if request.num_nodes > 1:
        nodes, gpus = str(request.num_nodes), str(settled.choice.gpus)
        env |= {"WORLD_SIZE": nodes, "NNODES": nodes}
        env |= {"NUM_GPU_PER_NODE": gpus, "NPROC_PER_NODE": gpus}
    env["TAO_JOB_ID"] = settled.job_id
    if settled.results_root:
        env["TAO_RESULTS_ROOT"] = settled.results_root
    return env


def _job(request: JobRequest, settled: ResolvedJob, envs: list[dict[str, Any]]) -> dict[str, Any]:
    options: LeptonOptions = request.options
    spec: dict[str, Any] = {
        "resource_shape": settled.choice.shape,
        "container": {
            "image": request.image,
            "command": command.container_command(request.shell_command, request.num_nodes),
        },
        "completions": request.num_nodes,
        "parallelism": request.num_nodes,
        "envs": envs,
        "ttl_seconds_after_finished": options.ttl_seconds,
        "log": {"enable_collection": True, "save_termination_logs": True},
    }
    if request.num_nodes > 1:
        spec["intra_job_communication"] = True
    if settled.choice.group:
        spec["affinity"] = {"allowed_dedicated_node_groups": [settled.choice.group]}
    if settled.mounts:
        spec["mounts"] = [place.payload() for place in settled.mounts]
    if settled.pull_secrets:
        spec["image_pull_secrets"] = list(settled.pull_secrets)
    if options.shm_size:
        spec["shared_memory_size"] = options.shm_size
    queue = {
        "priority_class": options.queue_priority,
        "can_be_preempted": options.can_be_preempted,
        "can_preempt": options.can_preempt,
    }
    queue = {name: value for name, value in queue.items() if value is not None}
    if queue:
        spec["queue_config"] = queue
    metadata = {
        "name": naming.job_name(settled.job_id),
        "visibility": options.visibility,
        "labels": _labels(request, settled),
    }
    return {"metadata": metadata, "spec": spec}


def _labels(request: JobRequest, settled: ResolvedJob) -> dict[str, str]:
    return {
        naming.LABEL: "true",
        naming.LABEL_JOB: settled.job_id,
        naming.LABEL_TOKEN: settled.token,
        naming.LABEL_NETWORK: naming.label_value(request.network_arch),
        naming.LABEL_ACTION: naming.label_value(request.action),
    }


def _secret_name(settled: ResolvedJob, variable: str) -> naming.SecretName:
    return naming.SecretName(settled.job_id.replace("-", ""), settled.made_at, variable)
