"""From a request to the files of a job, and notes about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.backend import Artefact, JobIdentity
from tao_sdk.platforms.common.archives import Member, pack
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.slurm import batch_script as text
from tao_sdk.platforms.slurm import containers
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings
from tao_sdk.platforms.slurm.image_names import Image, parse_image
from tao_sdk.platforms.slurm.job_folder import JobFolder
from tao_sdk.platforms.slurm.options import on_cluster
from tao_sdk.platforms.slurm.probe import Facts, choose_runtime
from tao_sdk.platforms.slurm.resources import Resources, check_wall_time, resources_of
from tao_sdk.platforms.staged_data import runner_settings, stop_seconds

_EMPTY_FOLDERS = ("slurm-logs", "claims")


class Staged(NamedTuple):
    """The files of a job, by name in its folder, and what they were made from."""

    job_folder: JobFolder
    resources: Resources
    directives: tuple[str, ...]
    image: Image | None
    cached: str
    runtime: str
    files: Mapping[str, str]
    secret: Mapping[str, str]
    """Files that hold secrets: never shown."""

    def __repr__(self) -> str:
        return f"Staged({self.job_folder.job_id})"

    def archive(self) -> bytes:
        """All of them as one stream."""
        return pack(self.members())

    def members(self, prefix: str = "") -> list[Member]:
        """Folders first."""
        contents = {**self.files, **self.secret}
        folders = (*sorted({name.partition("/")[0] for name in contents}), *_EMPTY_FOLDERS)
        return [
            *(Member(prefix + folder) for folder in folders),
            *(Member(prefix + name, content) for name, content in contents.items()),
        ]


def stage(
    request: JobRequest, identity: JobIdentity, cluster: ClusterSettings, facts: Facts, cache: str
) -> Staged:
    """Everything that submitting this job would put on the cluster. `cache` is for images."""
    job_folder = JobFolder(cluster.base, identity.job_id)
    resources = resources_of(request, cluster)
    partition = text.partition_of(request, cluster)
    check_wall_time(partition, resources.time_minutes, facts.partitions)
    _check_cluster_name(request, facts)
    image = parse_image(request.image) if request.image else None
    runtime = choose_runtime(cluster.runtime, facts) if image else "none"
    cached = _cached(image, runtime, cache)
    lines = text.directives(
        request, cluster, resources, name=identity.name, folder=job_folder.job_dir
    )
    values = _environment(request, cluster)
    tasks = containers.run_tasks(
        runtime,
        image,
        cached,
        containers.all_mounts(
            _site_mounts(cluster, facts) if image else (), request.options.mounts, cluster.base
        ),
        sorted({*values, "TAO_JOB_ID", "TAO_RESULTS_ROOT", "TAO_API_RESULTS_DIR"}),
        resources,
        task=f"{job_folder.job_dir}/{job_folder.task}",
    )
    script = text.batch_script(
        lines,
        job_folder,
        identity.token,
        resources,
        tasks,
        may_requeue=text.may_requeue(request, cluster),
        stop_seconds=stop_seconds(runner=request.payload is not None),
    )
    files = {
        job_folder.sbatch: script,
        job_folder.task: text.task_script(
            job_folder, resources, _roles(request, resources.nodes), _directory(request, job_folder)
        ),
        job_folder.entrypoint: f"{request.shell_command}\n",
        job_folder.specs: text.compact(dict(request.specs)),
        job_folder.env_names: text.compact(sorted(values)),
        job_folder.meta: text.compact(
            {"job_id": identity.job_id, "image": request.image, "results": job_folder.results}
        ),
    }
    secret = {job_folder.env: text.environment_script(values)}
    return Staged(job_folder, resources, tuple(lines), image, cached, runtime, files, secret)


def _directory(request: JobRequest, job_folder: JobFolder) -> str:
    """Where the command starts; "" is the image's own directory. Without an image: the results."""
    return request.options.container_workdir or ("" if request.image else job_folder.results)


def _roles(request: JobRequest, nodes: int) -> list[str]:
    """The role of each node; Cosmos-RL on several nodes has only policies by default."""
    counts = request.options.roles
    if counts is None:
        return ["policy"] * nodes if text.is_cosmos(request) and nodes > 1 else []
    if nodes == 1:
        raise ValidationError(
            "roles: a job on one node has none; they are for several (num_nodes=)"
        )
    roles = [name for name, count in counts.items() for _ in range(count)]
    if len(roles) != nodes:
        raise ValidationError(f"roles: they are for {len(roles)} nodes, and the job has {nodes}")
    return roles


def _site_mounts(cluster: ClusterSettings, facts: Facts) -> list[Mount]:
    """The folders that every container sees, as far as this cluster has them."""
    missing = [mount.source for mount in cluster.mounts if mount.source not in facts.mounts]
    if missing and settings.lookup("SLURM_CONTAINER_MOUNTS"):
        raise ValidationError(
            f"SLURM_CONTAINER_MOUNTS: {missing[0]} is not there, seen from the login host"
        )
    return [mount for mount in cluster.mounts if mount.source not in missing]


def _cached(image: Image | None, runtime: str, cache: str) -> str:
    if image is None or image.is_path or runtime not in ("pyxis", "enroot"):
        return ""
    if not cache:
        if runtime == "enroot":
            raise ValidationError(
                "image: Enroot without Pyxis starts squashfs files only: SLURM_USE_SQSH=true has "
                "them made, or give the path of one"
            )
        return ""
    return f"{cache}/{image.cache_name}"


def _check_cluster_name(request: JobRequest, facts: Facts) -> None:
    asked = (request.options.backend_details or {}).get("cluster_name")
    if asked and asked != facts.name:
        raise ValidationError(
            f"backend_details.cluster_name: {asked!r} is asked for, and the login host belongs to "
            f"{facts.name!r}"
        )


def _environment(request: JobRequest, cluster: ClusterSettings) -> dict[str, str]:
    """The job's variables, without those that its batch script sets. Holds secrets."""
    defaults = {
        "HF_HOME": f"{cluster.base}/.cache/huggingface",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NCCL_DEBUG": "INFO",
        "LOGLEVEL": "INFO",
    }
    own = {name: on_cluster(secret.reveal()) for name, secret in request.env.items()}
    return {**defaults, **runner_settings(request), **job_credentials(request.env), **own}


def cluster_path(where: str, path: str) -> str:
    """A path of the cluster in any accepted form; local addresses are refused."""
    if path.startswith("file://"):
        raise ValidationError(
            f"{where}: {path} is a file of this machine, which the cluster's nodes cannot see: "
            "copy it to shared storage and give lustre:///absolute/path"
        )
    found = on_cluster(path)
    if not found.startswith("/") or "://" in found:
        raise ValidationError(
            f"{where}: {path!r} is not a path of the cluster: give lustre:///absolute/path"
        )
    if "\n" in found or "\0" in found:
        raise ValidationError(f"{where}: {path!r}: a path of one line, please")
    return found


def required_paths(request: JobRequest) -> dict[str, str]:
    """Paths of the cluster that a job needs, and the keyword that names each.

    Refuses what no cluster can do, before one is asked.
    """
    if not request.image and request.options.mounts:
        raise UnsupportedError("mounts: without an image the job sees the node's own folders")
    required = {}
    for _, path, where in request.payload.content["links"] if request.payload else ():
        if "file://" in where:
            keyword, _, address = where.rpartition(": ")
            cluster_path(keyword or "inputs", address)
        required[cluster_path(where, path)] = where
    required |= {mount.source: "mounts" for mount in request.options.mounts}
    image = parse_image(request.image) if request.image else None
    if image and image.is_path:
        required[image.path] = "image"
    return required


def refuse_missing(required: Mapping[str, str], missing: Sequence[str]) -> None:
    """Refuse a job whose data, mounts or image file are not there."""
    if missing:
        what = "; ".join(f"{required[path]}: {path} is not there" for path in missing)
        raise ValidationError(
            f"{what}, seen from the login host: correct the path, or stage the data on the "
            "cluster's shared storage first"
        )


def artefacts(staged: Staged) -> tuple[Artefact, ...]:
    """What a plan shows: every file that holds no secret, in the order in which they matter."""
    shown = (staged.job_folder.sbatch, staged.job_folder.entrypoint, staged.job_folder.task)
    names = [*shown, *(name for name in staged.files if name not in shown)]
    return tuple(Artefact(name, staged.files[name]) for name in names)


def notes(request: JobRequest, staged: Staged, facts: Facts) -> tuple[str, ...]:
    """What the user should know before launching."""
    inputs = request.payload.content["inputs"] if request.payload else ()
    found = [
        f"{item['uri']} is downloaded while the job's GPUs idle, and a site may end such jobs: "
        "stage large data on the cluster and use lustre:///…"
        for item in inputs
        if item["uri"].startswith("s3://")
    ]
    if not facts.accounting:
        found.append("this cluster keeps no accounting: ends are known from the job's own record")
    if not facts.base_writable:
        found.append(
            f"{staged.job_folder.base} cannot be written by you: set SLURM_BASE_RESULTS_DIR to a "
            "shared folder of yours"
        )
    return tuple(found)
