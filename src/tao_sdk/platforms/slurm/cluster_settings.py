"""The cluster and the site's defaults, from SLURM_* variables and the packaged platform data."""

from __future__ import annotations

import functools
import json
import posixpath
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import CredentialError, ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.slurm.client import Login
from tao_sdk.platforms.slurm.options import check_mounts, check_words
from tao_sdk.untrusted import number

# Of the bank inside this package, whichever bank is in use, because these are defaults of the SDK.
# Read here and not through `tao_sdk.skills`, which lies above the platforms.
_PLATFORMS = "skills/bank/skills/platform/platforms.manifest.json"
_DEFAULT_BASE = "/lustre/fsw/portfolios/edgeai/users/{user}"
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:\d+)?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class ClusterSettings(NamedTuple):
    """One cluster."""

    login: Login
    base: str
    """Absolute; everything that the SDK keeps on the cluster is below it."""
    partition: str
    account: str
    mounts: tuple[Mount, ...]
    time_hours: float
    timeout_hours: float | None
    cpus_per_task: int
    max_cpus_per_task: int
    max_gpus_per_node: int
    requeue: bool
    warn_before_limit: bool
    mail_user: str
    runtime: str
    """pyxis, enroot, apptainer, none; "" takes what the cluster has."""
    retries: int
    retry_seconds: float


class PackagedDefaults(NamedTuple):
    """What the packaged platform data say about SLURM."""

    partition: str = ""
    """Default partitions, by comma; empty lets the cluster choose."""
    limits: Mapping[str, int] = {}
    """Wall-time limits of these partitions in minutes, which clusters do not always report."""


@functools.cache
def packaged_defaults() -> PackagedDefaults:
    """The defaults, read once; none in an installation without a packaged bank."""
    manifest = resources.files("tao_sdk").joinpath(_PLATFORMS)
    if not manifest.is_file():
        return PackagedDefaults()
    platforms = json.loads(manifest.read_text(encoding="utf-8"))["platforms"]
    [record] = [record for record in platforms if record["name"] == "slurm"]
    values = record["resource_defaults"]
    minutes = int(values["max_time_hours"] * 60)
    partition = values["partition"]
    return PackagedDefaults(partition, dict.fromkeys(partition.split(","), minutes))


def from_environment() -> ClusterSettings:
    """The cluster that the environment names; `CredentialError` when it names none."""
    settings.require("SLURM_USER", "SLURM_HOSTNAME", purpose="SLURM over ssh")
    user = settings.get("SLURM_USER")
    if not _USER.fullmatch(user):
        raise ValidationError(f"SLURM_USER={user!r} is not the name of a user")
    return ClusterSettings(
        login=Login(
            user=user,
            hosts=_hosts(settings.get("SLURM_HOSTNAME")),
            key=_readable("SSH_KEY_PATH"),
            config=_readable("SLURM_SSH_CONFIG"),
            reuse_only=switch("SLURM_SSH_REUSE_ONLY"),
        ),
        base=check_base(
            settings.lookup("SLURM_BASE_RESULTS_DIR") or _DEFAULT_BASE.format(user=user)
        ),
        partition=_words("SLURM_PARTITION") or packaged_defaults().partition,
        account=_words("SLURM_ACCOUNT"),
        mounts=check_mounts("SLURM_CONTAINER_MOUNTS", settings.get("SLURM_CONTAINER_MOUNTS")),
        time_hours=_hours("SLURM_TIME_HOURS"),
        timeout_hours=_hours("SLURM_TIMEOUT_HOURS")
        if settings.lookup("SLURM_TIMEOUT_HOURS")
        else None,
        cpus_per_task=_count("SLURM_CPUS_PER_TASK"),
        max_cpus_per_task=_count("SLURM_MAX_CPUS_PER_TASK"),
        max_gpus_per_node=_count("SLURM_MAX_GPUS_PER_NODE"),
        requeue=switch("SLURM_USE_REQUEUE"),
        warn_before_limit=switch("SLURM_USE_TIMEOUT"),
        mail_user=_words("SLURM_MAIL_USER"),
        runtime=_runtime(),
        retries=_count("SLURM_MAX_RETRIES", least=0),
        retry_seconds=settings.get_seconds("SLURM_RETRY_SECONDS"),
    )


def check_base(text: str, name: str = "SLURM_BASE_RESULTS_DIR") -> str:
    """The folder of the cluster that the setting `name` gives, if Slurm can use it."""
    path = posixpath.normpath(text)
    if not text.startswith("/") or path == "/" or ".." in text.split("/"):
        raise ValidationError(
            f"{name}={text!r} must be an absolute folder of the cluster, not / and without .."
        )
    if not re.fullmatch(r"[A-Za-z0-9_./+@=-]+", path):
        raise ValidationError(
            f"{name}={text!r}: Slurm and container mounts need a path of letters, "
            "digits and _ . / + @ = - only"
        )
    return path


def switch(name: str) -> bool:
    """A setting that is true or false."""
    text = settings.get(name).lower()
    if text not in _TRUE | _FALSE:
        raise ValidationError(f"{name}={text!r}: say true or false")
    return text in _TRUE


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ValidationError(f"SLURM_HOSTNAME: {host!r} is not the name of a host")
    if not hosts:
        raise CredentialError("SLURM_HOSTNAME names no login host: give one or more, by comma")
    return hosts


def _readable(name: str) -> str:
    text = settings.get(name)
    if not text:
        return ""
    path = Path(text).expanduser()
    if not path.is_file():
        raise CredentialError(f"{name}={text}: there is no such file on this machine")
    return str(path.absolute())


def _words(name: str) -> str:
    """A value for sbatch; "" where there is none."""
    text = settings.get(name)
    return check_words(name, text) if text else ""


def positive_number(name: str, what: str = "a number") -> float:
    """A setting that is a number above 0."""
    text = settings.get(name)
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise ValidationError(f"{name}={text!r} is not {what} above 0")
    return number


def _hours(name: str) -> float:
    return positive_number(name, "a number of hours")


def _count(name: str, least: int = 1) -> int:
    text = settings.get(name)
    count = number(text)
    if count is None or count < least:
        raise ValidationError(f"{name}={text!r} is not a whole number of at least {least}")
    return count


def _runtime() -> str:
    text = settings.get("SLURM_CONTAINER_RUNTIME")
    if text not in ("", "pyxis", "enroot", "apptainer", "none"):
        raise ValidationError(
            f"SLURM_CONTAINER_RUNTIME={text!r} is none of pyxis, enroot, apptainer, none"
        )
    return text
