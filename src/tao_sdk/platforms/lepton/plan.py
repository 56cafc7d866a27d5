"""What a plan says, and what it refuses before anything exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import Artefact
from tao_sdk.platforms.common.container_command import SHELL_NOTE
from tao_sdk.platforms.common.option_checks import check_image, check_variables
from tao_sdk.platforms.lepton import command, naming, shapes
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.lepton.job_spec import Objects
from tao_sdk.platforms.lepton.options import LeptonOptions
from tao_sdk.platforms.lepton.volumes import (
    LOCAL,
    Place,
    detected,
    doubt_about,
    looked_up,
    preferred,
    results_root,
)
from tao_sdk.platforms.lepton.workspace import Workspace
from tao_sdk.platforms.request import JobRequest

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
    """Raise for what no workspace could run."""
    check_image(request.image, "Lepton")
    size = len(request.shell_command.encode())
    if size > command.LONGEST_COMMAND:
        raise ValidationError(
            f"command: {size:,} bytes are more than a container can be "
            f"given ({command.LONGEST_COMMAND:,}); pass large data as a file"
        )
    check_variables(request.env)
    for name in request.env:
        if name in _RESERVED:
            raise ValidationError(f"env_vars.{name}: set by Lepton for every job; leave it out")


class Found(NamedTuple):
    """Where a job goes, and what it sees there."""

    choice: shapes.Choice
    mounts: tuple[Place, ...]
    results_root: str
    results: Place | None
    notes: tuple[str, ...]


def find_place(options: LeptonOptions, gpus: int, workspace: Workspace) -> Found:
    """The shape, the node group and the mounts of a job; raises where there are none."""
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
    """What is mounted, and what of it nobody had asked for."""
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
    """The pull secrets of a job, and whether ours has to be made first."""
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
    """What a person is shown: where, and the job word for word, less the secrets."""
    where = f"workspace {access.workspace}\n{access.url}"
    shown = [Artefact("where", where)]
    shown += [Artefact(name, told) for name, told in objects.shown().items()]
    return tuple(shown)


def notes(told: Sequence[str], results_dir: str) -> tuple[str, ...]:
    """What a person should know before submitting."""
    said = [SHELL_NOTE, *told]
    if not results_dir:
        said.append(
            "no shared storage and no bucket: what the job writes goes with its container "
            "(mounts='volume:/results' keeps it; S3_BUCKET_NAME sends declared outputs to a bucket)"
        )
    return tuple(said)
