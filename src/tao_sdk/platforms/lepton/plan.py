"""What a plan shows, and what it refuses before anything exists."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import Artefact, JobIdentity, Plan
from tao_sdk.platforms.common.container_command import SHELL_NOTE
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.common.option_checks import check_image, check_variables
from tao_sdk.platforms.lepton import job_spec, naming, shapes
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.lepton.job_spec import Objects
from tao_sdk.platforms.lepton.options import LeptonOptions
from tao_sdk.platforms.lepton.volumes import (
    LOCAL,
    SCHEME,
    Place,
    detected,
    doubt_about,
    looked_up,
    preferred,
    results_root,
)
from tao_sdk.platforms.lepton.workspace import Workspace
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import results_in_bucket, runner_settings

_NGC_REGISTRY = "nvcr.io"
_RESERVED = frozenset(
    {
        "LEPTON_WORKSPACE_ID",
        "LEPTON_DEPLOYMENT_NAME",
        "LEPTON_JOB_NAME",
        "LEPTON_RESOURCE_ACCELERATOR_TYPE",
        "LEPTON_WORKSPACE_ORIGIN_URL",
    }
)


def refuse_impossible(request: JobRequest) -> None:
    """Raise for requests that no workspace can run."""
    check_image(request.image, "Lepton")
    size = len(request.shell_command.encode())
    if size > job_spec.MAX_COMMAND_BYTES:
        raise ValidationError(
            f"command: {size:,} bytes are more than a container can be "
            f"given ({job_spec.MAX_COMMAND_BYTES:,}); pass large data as a file"
        )
    check_variables(request.env)
    for name in request.env:
        if name in _RESERVED:
            raise ValidationError(f"env_vars.{name}: set by Lepton for every job; leave it out")


class Found(NamedTuple):
    """The place of a job: machines, volumes, results."""

    choice: shapes.Choice
    mounts: tuple[Place, ...]
    results_root: str
    results: Place | None
    notes: tuple[str, ...]


def make_plan(
    request: JobRequest, identity: JobIdentity, workspace: Workspace, access: WorkspaceAccess
) -> Plan:
    """Find the place of a job, and build the requests that submit it."""
    options: LeptonOptions = request.options
    found = find_place(options, request.gpu_count, workspace)
    pull, creates_pull_secret = pull_secrets(options.image_pull_secret, request.image, workspace)
    resolved = job_spec.ResolvedJob(
        job_id=identity.job_id,
        token=identity.token,
        made_at=int(time.time()),
        choice=found.choice,
        mounts=found.mounts,
        results_root=found.results_root,
        credentials=job_credentials(request.env),
        runner=runner_settings(request),
        pull_secrets=pull,
    )
    objects = job_spec.build(request, resolved)._replace(makes_pull_secret=creates_pull_secret)
    results = _results_mount(found)
    if found.results is not None:
        results_dir = f"{SCHEME}://{found.results.volume}{results[2]}/{identity.job_id}"
    else:
        env = {
            **job_spec.secret_environment(request, resolved),
            **job_spec.plain_environment(request, resolved),
        }
        results_dir = results_in_bucket(request, env, identity.job_id)
    return Plan(
        identity=identity,
        platform="lepton",
        request=request,
        artefacts=artefacts(objects, access),
        intent={
            "workspace": access.workspace,
            "url": access.url,
            "id": "",
            "nodes": request.num_nodes,
            "made_at": resolved.made_at,
            "secrets": [secret["name"] for secret in objects.secrets],
            "group": found.choice.group,
            "image": request.image,
            "pull_secrets": list(pull),
            "results": results,
        },
        results_dir=results_dir,
        warnings=notes(found.notes, results_dir),
        payload=objects,
    )


def _results_mount(found: Found) -> list[str]:
    """The mount that has the results (volume and folder), and their folder on the volume."""
    place = found.results
    if place is None:
        return []
    below = found.results_root.removeprefix(place.target)
    return [place.source, place.path, f"{place.path.rstrip('/')}{below}"]


def find_place(options: LeptonOptions, gpus: int, workspace: Workspace) -> Found:
    """Choose shape, node group and mounts of a job. Raises if there are none."""
    groups = workspace.groups()
    wanted = options.dedicated_node_group
    group = shapes.find_group(groups, wanted).id if wanted else ""
    choice = shapes.choose(
        workspace.shapes(group), groups, gpus, options.resource_shape or "", group
    )
    queued = [
        name
        for name in ("queue_priority", "can_be_preempted", "can_preempt")
        if getattr(options, name) is not None
    ]
    if queued and not choice.group:
        raise ValidationError(
            f"{queued[0]}: only node groups have queues: name one (dedicated_node_group=)"
        )
    notes = [choice.note]
    places, found = _mounts(options.mounts, workspace, choice.group)
    root, results = results_root(places, found)
    for place in places:
        if place.source != LOCAL:
            notes.append(doubt_about(place, workspace.permissions(place.volume, choice.group)))
    if found is not None:
        notes.append(
            f"mounts: {found.source}{found.path} is mounted at {found.target}, found in the node "
            "group (mounts=[] for none)"
        )
    return Found(choice, places, root, results, tuple(filter(None, notes)))


def _mounts(
    given: Sequence[Place] | None, workspace: Workspace, group: str
) -> tuple[tuple[Place, ...], Place | None]:
    """All mounts, and the one among them that was not requested but found."""
    volumes = workspace.volumes(group) if group else []
    if given is not None:
        places = (looked_up(f"mounts[{n}]", one, group, volumes) for n, one in enumerate(given))
        return tuple(places), None
    volume = preferred(volumes)
    if volume is None:
        return (), None
    found = detected(volume, workspace.permissions(volume.name, group))
    return (found,), found


def pull_secrets(
    given: tuple[str, ...] | None, image: str, workspace: Workspace
) -> tuple[tuple[str, ...], bool]:
    """The pull secrets of a job, and whether ours must be created first."""
    if given is not None:
        there = workspace.pull_secrets() if given else []
        for name in given:
            if name not in there:
                raise ValidationError(
                    f"image_pull_secret: the workspace has no {name!r}; there is: "
                    f"{', '.join(there) or 'none'}"
                )
        return given, False
    if image.partition("/")[0] != _NGC_REGISTRY:
        return (), False
    if naming.PULL_SECRET in workspace.pull_secrets():
        return (naming.PULL_SECRET,), False
    if not settings.lookup("NGC_KEY"):
        return (), False
    return (naming.PULL_SECRET,), True


def artefacts(objects: Objects, access: WorkspaceAccess) -> tuple[Artefact, ...]:
    """The workspace, and the requests without the values of secrets."""
    where = f"workspace {access.workspace}\n{access.url}"
    texts = {"where": where, **objects.shown()}
    return tuple(Artefact(name, text) for name, text in texts.items())


def notes(found: Sequence[str], results_dir: str) -> tuple[str, ...]:
    """What a user should know before submitting."""
    notes = [SHELL_NOTE, *found]
    if not results_dir:
        notes.append(
            "no shared storage and no bucket: what the job writes goes with its container "
            "(mounts='volume:/results' keeps it; S3_BUCKET_NAME sends declared outputs to a bucket)"
        )
    return tuple(notes)
