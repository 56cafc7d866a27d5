"""The requests of a submission: the job and its secrets. Pure.

All environment values of the caller and all credentials are secrets of the workspace; the job has
their names. The server refuses empty secrets, so empty values are in the job. A job without secrets
gets one, because `settle` relies on this: without its secrets a job cannot start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tao_sdk.platforms.common.container_command import MAX_ARGUMENT_BYTES, SHELL, fits_argument
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.options import LeptonOptions
from tao_sdk.platforms.lepton.shapes import Choice
from tao_sdk.platforms.lepton.volumes import Place
from tao_sdk.platforms.request import JobRequest
from tao_sdk.result_record import shim_argv

_NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "void"}
DEFAULT_PORT = "29400"
# Of all words of a command, with room for the environment.
MAX_COMMAND_BYTES = 1_400_000

# A command in pieces is joined to a file that only the job can read.
_JOIN = (
    'f="${TMPDIR:-/tmp}/tao-command.$$"; umask 077; '
    'for p; do printf %s "$p"; done > "$f" || exit 126; umask 022; set -- "$f"; '
)

_ATTEMPT = "export TAO_ATTEMPT=$((${LEPTON_JOB_FAILURE_COUNT:-0}+1)); "
# Workers find each other by the variables that Lepton sets; nothing has to be fetched.
_MEET = (
    'tao_p="${LEPTON_JOB_SERVICE_PREFIX:-${LEPTON_JOB_WORKER_HOSTNAME_PREFIX:-'
    '${LEPTON_JOB_WORKER_PREFIX:-$LEPTON_JOB_NAME}}}"; '
    'tao_s="${LEPTON_SUBDOMAIN:-$LEPTON_JOB_NAME-job-svc}"; '
    'export NODE_RANK="${LEPTON_JOB_WORKER_INDEX:-0}" MASTER_ADDR="$tao_p-0.$tao_s"; '
    'tao_i=1; tao_w=; while [ "$tao_i" -lt "$NNODES" ]; do '
    'tao_w="$tao_w${tao_w:+,}$tao_p-$tao_i.$tao_s"; tao_i=$((tao_i+1)); done; '
    'export WORKER_ADDRS="$tao_w"; unset tao_p tao_s tao_i tao_w; '
)


class ResolvedJob(NamedTuple):
    """What a job gets beside what was requested."""

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
    """What a submission creates. Holds secrets: never printed, never stored."""

    job: dict[str, Any]
    secrets: tuple[dict[str, str], ...]
    makes_pull_secret: bool = False

    def shown(self) -> dict[str, str]:
        """As text: the job in full, secrets by name."""
        shown = {"job": json.dumps(self.job, indent=2, ensure_ascii=False)}
        shown["secrets of the workspace"] = "\n".join(one["name"] for one in self.secrets)
        if self.makes_pull_secret:
            shown["pull secret"] = f"{naming.PULL_SECRET}, for nvcr.io, from NGC_KEY"
        return shown


def build(request: JobRequest, resolved: ResolvedJob) -> Objects:
    """The job and its secrets."""
    values = secret_environment(request, resolved)
    if not any(values.values()):
        values[naming.GATE] = resolved.token
    names = {name: str(_secret_name(resolved, name)) for name, value in values.items() if value}
    secrets = tuple(
        {"name": names[name], "value": value, "visibility": "private"}
        for name, value in values.items()
        if value
    )
    plain = {
        **{name: "" for name, value in values.items() if not value},
        **plain_environment(request, resolved),
    }
    envs: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in plain.items()]
    envs += [
        {"name": name, "value_from": {"secret_name_ref": secret}} for name, secret in names.items()
    ]
    return Objects(_job(request, resolved, envs), secrets)


def secret_environment(request: JobRequest, resolved: ResolvedJob) -> dict[str, str]:
    """The variables of the container whose values are secret."""
    own = {name: value.reveal() for name, value in request.env.items()}
    return {**resolved.credentials, **own}


def plain_environment(request: JobRequest, resolved: ResolvedJob) -> dict[str, str]:
    """The other variables of the container. `env_vars` win, except over those of the SDK."""
    env = dict(resolved.runner)
    if resolved.choice.gpus == 0:
        env.update(_NO_GPUS)
    if request.num_nodes > 1:
        env["MASTER_PORT"] = DEFAULT_PORT
    env = {name: value for name, value in env.items() if name not in request.env}
    if request.num_nodes > 1:
        nodes, gpus = str(request.num_nodes), str(resolved.choice.gpus)
        env |= {"WORLD_SIZE": nodes, "NNODES": nodes}
        env |= {"NUM_GPU_PER_NODE": gpus, "NPROC_PER_NODE": gpus}
    env["TAO_JOB_ID"] = resolved.job_id
    if resolved.results_root:
        env["TAO_RESULTS_ROOT"] = resolved.results_root
    return env


def _job(request: JobRequest, resolved: ResolvedJob, envs: list[dict[str, Any]]) -> dict[str, Any]:
    options: LeptonOptions = request.options
    spec: dict[str, Any] = {
        "resource_shape": resolved.choice.shape,
        "container": {
            "image": request.image,
            "command": container_command(request.shell_command, request.num_nodes),
        },
        "completions": request.num_nodes,
        "parallelism": request.num_nodes,
        "envs": envs,
        "ttl_seconds_after_finished": options.ttl_seconds,
        "log": {"enable_collection": True, "save_termination_logs": True},
    }
    if request.num_nodes > 1:
        spec["intra_job_communication"] = True
    if resolved.choice.group:
        spec["affinity"] = {"allowed_dedicated_node_groups": [resolved.choice.group]}
    if resolved.mounts:
        spec["mounts"] = [place.payload() for place in resolved.mounts]
    if resolved.pull_secrets:
        spec["image_pull_secrets"] = list(resolved.pull_secrets)
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
        "name": naming.job_name(resolved.job_id),
        "visibility": options.visibility,
        "labels": _labels(request, resolved),
    }
    return {"metadata": metadata, "spec": spec}


def _labels(request: JobRequest, resolved: ResolvedJob) -> dict[str, str]:
    return {
        naming.LABEL: "true",
        naming.LABEL_JOB: resolved.job_id,
        naming.LABEL_TOKEN: resolved.token,
        naming.LABEL_NETWORK: naming.label_value(request.network_arch),
        naming.LABEL_ACTION: naming.label_value(request.action),
    }


def _secret_name(resolved: ResolvedJob, variable: str) -> naming.SecretName:
    return naming.SecretName(resolved.job_id.replace("-", ""), resolved.made_at, variable)


def container_command(command: str, nodes: int) -> list[str]:
    """The `command` of the container: rendezvous, result shim, shell, command."""
    if fits_argument(command):
        words = ["/bin/sh", "-c", SHELL, "tao-shell", "-c", command]
    else:
        words = ["/bin/sh", "-c", _JOIN + SHELL, "tao-shell", *_pieces(command)]
    start = _ATTEMPT + (_MEET if nodes > 1 else "") + 'exec "$@"'
    return ["/bin/sh", "-c", start, "tao-start", *shim_argv(words, tell=True)]


def _pieces(command: str) -> list[str]:
    """Parts of at most the size of an argument; no character has more than four bytes."""
    size = MAX_ARGUMENT_BYTES // 4
    return [command[at : at + size] for at in range(0, len(command), size)]
