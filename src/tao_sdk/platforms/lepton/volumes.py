"""Mounts of shared storage: the volume, the folder in it, and the path in the job. Pure.

A mount has Lepton's own form, `{"from": "node-nfs:lustre", "path": "/x", "mount_path": "/data"}`,
or one that every platform accepts: `"lustre/x:/data[:ro]"` (the name of a volume and a folder in
it) or `"node-local/x:/data"` (a folder of the node itself).

Without mounts, the volume of the node group that looks most like shared storage is mounted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.common.mounts import RESULTS, check_each_mount, results_mount
from tao_sdk.platforms.request import check_text

SCHEME = "lepton-volume"
LOCAL = "node-local"
_NAME = re.compile(r"[A-Za-z0-9]([\w.-]{0,251}[A-Za-z0-9])?", re.ASCII)
_FROM = re.compile(r"node-local|node-[a-z0-9]+:[A-Za-z0-9][\w.-]*", re.ASCII)
# Lepton refuses to mount at these. Folders below most of them are accepted.
_SYSTEM = frozenset(
    f"/{name}"
    for name in ("", "bin", "boot", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "root")
) | frozenset(f"/{name}" for name in ("run", "sbin", "srv", "sys", "tmp", "usr", "var"))
_PREFERRED = ("lustre", "filestore")


class Volume(NamedTuple):
    """Storage of the nodes of a group."""

    name: str
    kind: str
    """nfs, local or remote."""
    from_path: str = ""

    @property
    def source(self) -> str:
        """Its name in a mount."""
        return LOCAL if self.kind == "local" else f"node-{self.kind}:{self.name}"

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Volume:
        kind = str(found.get("from") or found.get("type") or "nfs")
        return cls(str(found.get("name") or ""), kind, str(found.get("from_path") or ""))


class Place(NamedTuple):
    """A folder of a volume, and its path in a job."""

    source: str
    """Lepton's `from`; before `looked_up`, perhaps the name of a volume alone."""
    path: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}{self.path}:{self.target}{':ro' if self.read_only else ''}"

    @property
    def volume(self) -> str:
        return self.source.partition(":")[2] or self.source

    def payload(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "path": self.path,
            "from": self.source,
            "mount_path": self.target,
        }
        if self.read_only:
            body["mount_options"] = {"read_only": True}
        return body


def check_mounts(where: str, value: Any) -> tuple[Place, ...]:
    """A list of mounts in any of the forms."""
    return check_each_mount(where, value, _check, "lustre/me:/data:ro")


def _check(where: str, value: Any) -> Place:
    if isinstance(value, Place):
        return value
    if isinstance(value, Mapping) and "mount_path" in value:
        options = value.get("mount_options") or {}
        if not isinstance(options, Mapping):
            raise ValidationError(
                f"{where}.mount_options: expected {{'read_only': True}}, got {options!r}"
            )
        source, path = str(value.get("from") or ""), str(value.get("path") or "/")
        read_only = bool(options.get("read_only") or value.get("read_only"))
        place = Place(source, path, str(value["mount_path"]), read_only)
    else:
        mount = Mount.parse(value, where)
        source, _, path = mount.source.partition("/")
        place = Place(source, f"/{path}", mount.target, mount.read_only)
    for text in place[:3]:
        check_text(where, text)
    if not (_FROM.fullmatch(place.source) or _NAME.fullmatch(place.source)):
        raise ValidationError(
            f"{where}: {place.source!r} is not a volume of Lepton: give its name and a folder "
            "(lustre/me:/data), or node-local/folder:/data; nothing of this machine can be mounted"
        )
    path = place.path if place.path.startswith("/") else f"/{place.path}"
    target = place.target.rstrip("/")
    if ".." in path.split("/"):
        raise ValidationError(f"{where}: {path} has '..' in it; give the folder itself")
    if not target.startswith("/") or ".." in target.split("/") or ":" in target:
        raise ValidationError(
            f"{where}: the target {place.target!r} must be an absolute path in the container"
        )
    if target in _SYSTEM:
        raise ValidationError(f"{where}: Lepton refuses to mount anything at {target}")
    return place._replace(path=path.rstrip("/") or "/", target=target)


def looked_up(where: str, place: Place, group: str, volumes: Sequence[Volume]) -> Place:
    """The mount with the source in Lepton's form."""
    if _FROM.fullmatch(place.source):
        return place
    if not group:
        raise ValidationError(
            f"{where}: {place.source} would be a volume of a node group, and the job has none: "
            "name one (dedicated_node_group=)"
        )
    for volume in volumes:
        if volume.name == place.source:
            return place._replace(source=volume.source)
    there = ", ".join(volume.name for volume in volumes) or "none"
    raise ValidationError(
        f"{where}: the node group has no volume {place.source!r}; there is: {there}"
    )


def preferred(volumes: Sequence[Volume]) -> Volume | None:
    """The volume that looks most like shared storage."""
    shared = [volume for volume in volumes if volume.kind != "local" and volume.name]
    for word in _PREFERRED:
        for volume in shared:
            if word in volume.name.lower():
                return volume
    return shared[0] if shared else None


def detected(volume: Volume, permissions: Sequence[Mapping[str, Any]]) -> Place:
    """The mount of a volume that was found: the first folder of it that may be mounted."""
    prefixes = [str(one.get("path_prefix") or "") for one in permissions]
    path = next((prefix for prefix in prefixes if prefix.startswith("/")), "/")
    return Place(volume.source, path.rstrip("/") or "/", f"/mnt/{volume.name}")


def doubt_about(place: Place, permissions: Sequence[Mapping[str, Any]]) -> str:
    """A warning if the mount is not among the folders that may be mounted; else ""."""
    prefixes = [str(one.get("path_prefix") or "").rstrip("/") for one in permissions]
    if not prefixes or any(f"{place.path}/".startswith(f"{prefix}/") for prefix in prefixes):
        return ""
    there = ", ".join(prefix or "/" for prefix in prefixes)
    return f"{place}: of {place.volume} you may mount {there}; Lepton may refuse {place.path}"


def results_root(places: Sequence[Place], found: Place | None) -> tuple[str, Place | None]:
    """TAO_RESULTS_ROOT in a job, and its mount; "" if there is none."""
    if place := results_mount(places):
        return RESULTS, place
    if found is not None:
        return f"{found.target}/results", found
    return "", None
