"""Keywords of `create_job` on SLURM, each checked before it can reach a script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.common.mounts import check_each_mount
from tao_sdk.platforms.common.option_checks import check_amount, check_switch
from tao_sdk.platforms.request import Keyword, check_positive, check_text, one_of

# What Slurm's own words are made of. Nothing here can end a directive or begin another.
_WORDS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:;@+*/&|()\[\]=?%!-]*")
_EXTRA = re.compile(r"--([a-z][a-z0-9-]*)(=\S+)?")
_PATH = re.compile(r"/[A-Za-z0-9_./+@=-]*")

# fmt: off
# Options that a further component of a heterogeneous job has for itself.
_OF_COMPONENTS = {
    "nodes", "ntasks", "ntasks-per-node", "gres", "gpus", "gpus-per-node", "gpus-per-task",
    "cpus-per-task", "partition", "account", "qos", "constraint", "nodelist", "exclude", "mem",
    "exclusive",
}
# Options that the SDK sets itself.
PROTECTED = _OF_COMPONENTS | {
    "array", "job-name", "output", "error", "open-mode", "export", "requeue", "no-requeue",
    "signal", "time", "chdir", "wrap", "parsable", "hold", "comment", "input", "reservation",
    "dependency", "mail-user", "mail-type", "wait-all-nodes", "wait", "test-only", "clusters",
    "export-file", "get-user-env", "gpus-per-socket", "uid", "gid",
}
# fmt: on
_NEXT_COMPONENT = "hetjob"


def on_cluster(value: str) -> str:
    """`slurm://` and `lustre://` addresses as the paths that they are."""
    for scheme in ("slurm://", "lustre://"):
        if value.startswith(scheme):
            return "/" + value.removeprefix(scheme).lstrip("/")
    return value


def check_words(where: str, value: Any) -> str:
    """One of Slurm's own words: a partition, an account, a list of nodes."""
    text = check_text(where, value)
    if not _WORDS.fullmatch(text):
        raise ValidationError(
            f"{where}: {text!r} cannot be a value for Slurm: letters, digits and "
            "_ . , : ; @ + * / & | ( ) [ ] = ? % ! - only, without spaces"
        )
    return text


def _check_memory(where: str, value: Any) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not re.fullmatch(r"\d+[KMGT]?", text):
        raise ValidationError(f"{where}: {value!r} is not a size for Slurm, such as 64G (0 is all)")
    return text


def check_mounts(where: str, value: Any) -> tuple[Mount, ...]:
    """Folders of the cluster that the container sees, beside SLURM_CONTAINER_MOUNTS."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part]
    return check_each_mount(where, value, _check_mount, "/data:/data:ro")


def _check_mount(where: str, value: Any) -> Mount:
    mount = Mount.parse(on_cluster(value) if isinstance(value, str) else value, where)
    for part in (mount.source, mount.target):
        if "://" in part:
            raise ValidationError(
                f"{where}: {part} is not a folder of the cluster; give its absolute path there"
            )
        if not _PATH.fullmatch(part) or ".." in part.split("/"):
            raise ValidationError(
                f"{where}: {part!r} must be an absolute path of letters, digits and _ . / + @ = -"
            )
    return mount


def _check_extras(where: str, value: Any) -> tuple[str, ...]:
    protected = PROTECTED
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValidationError(f"{where}: expected a list such as ['--switches=1', '--spread-job']")
    found = []
    for number, item in enumerate(value):
        text = check_text(f"{where}[{number}]", item).removeprefix("#SBATCH ").strip()
        if text == _NEXT_COMPONENT:
            protected = PROTECTED - _OF_COMPONENTS
            found.append(text)
            continue
        match = _EXTRA.fullmatch(text)
        if not match:
            raise ValidationError(
                f"{where}[{number}]: {item!r} is not one sbatch option like --name=value, without "
                "spaces"
            )
        # sbatch takes any beginning of a name for the whole of it.
        if meant := [name for name in sorted(protected) if name.startswith(match[1])]:
            raise ValidationError(
                f"{where}[{number}]: --{meant[0]} is the SDK's own; use a keyword of create_job "
                "if there is one for it"
            )
        found.append(text)
    return tuple(found)


_DETAILS: dict[str, Callable[[str, Any], str]] = {
    "backend_type": one_of("slurm"),
    "partition": check_words,
    "cluster_name": check_words,
}


def _check_details(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValidationError(f"{where}: expected {{'backend_type': 'slurm', 'partition': …}}")
    unknown = sorted(set(value) - set(_DETAILS))
    if unknown:
        raise ValidationError(
            f"{where}.{unknown[0]}: not known here; there are {', '.join(_DETAILS)} "
            "(slurm_metadata is written by the SDK once Slurm has answered)"
        )
    return {name: _DETAILS[name](f"{where}.{name}", item) for name, item in value.items() if item}


def _check_roles(where: str, value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value:
        raise ValidationError(f"{where}: expected {{'policy': 2, 'rollout': 1}}")
    return {
        check_words(f"a key of {where}", name): check_positive(f"{where}.{name}", count)
        for name, count in value.items()
    }


class SlurmOptions(NamedTuple):
    """What a job on Slurm can be given beyond what every platform has."""

    partition: Annotated[
        str | None, Keyword("partitions, by comma; default: SLURM_PARTITION", check_words)
    ] = None
    account: Annotated[
        str | None, Keyword("account to charge; default: SLURM_ACCOUNT", check_words)
    ] = None
    qos: Annotated[str | None, Keyword("quality of service", check_words)] = None
    constraint: Annotated[str | None, Keyword("features that nodes must have", check_words)] = None
    reservation: Annotated[str | None, Keyword("run inside this reservation", check_words)] = None
    nodelist: Annotated[str | None, Keyword("on these nodes", check_words)] = None
    exclude: Annotated[str | None, Keyword("not on these nodes", check_words)] = None
    dependency: Annotated[
        str | None, Keyword("start when other jobs of Slurm allow it: 'afterok:123'", check_words)
    ] = None
    time_hours: Annotated[
        float | None,
        Keyword(
            "wall time of an attempt; default: SLURM_TIME_HOURS",
            check_amount(" of hours", below=10_000),
        ),
    ] = None
    cpus_per_task: Annotated[int | None, Keyword("processors per node", check_positive)] = None
    memory: Annotated[
        str | None, Keyword("memory per node, such as 64G; '0' is all of it", _check_memory)
    ] = None
    exclusive: Annotated[
        bool | None,
        Keyword("whole nodes; default: when all their GPUs are asked for", check_switch),
    ] = None
    requeue: Annotated[
        bool | None, Keyword("Slurm may requeue the job; default: SLURM_USE_REQUEUE", check_switch)
    ] = None
    mail_user: Annotated[
        str | None, Keyword("where Slurm reports; default: SLURM_MAIL_USER", check_words)
    ] = None
    mounts: Annotated[
        tuple[Mount, ...],
        Keyword("folders of the cluster: 'source[:target[:ro|rw]]', Mount", check_mounts),
    ] = ()
    roles: Annotated[
        dict[str, int] | None,
        Keyword(
            "how many nodes have which role, in order: {'policy': 2, 'rollout': 1}; the first node "
            "is the controller, too",
            _check_roles,
        ),
    ] = None
    container_workdir: Annotated[
        str | None, Keyword("working directory; default: the image's", check_text)
    ] = None
    sbatch_extra: Annotated[
        tuple[str, ...],
        Keyword(
            "further sbatch options, verbatim: ['--switches=1']; after 'hetjob' come those of "
            "another component",
            _check_extras,
        ),
    ] = ()
    backend_details: Annotated[
        Mapping[str, str] | None,
        Keyword("{'backend_type': 'slurm', 'partition': …, 'cluster_name': …}", _check_details),
    ] = None
