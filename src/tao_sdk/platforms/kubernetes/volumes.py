"""Mounts: sources such as `pvc://claim/folder`, and the volumes of a pod for them. Pure.

A source is one of::

    pvc://claim[/folder]       a PersistentVolumeClaim of the namespace; short: a bare name
    nfs://server/export        an NFS export
    hostpath:///folder         a folder of the node that runs the pod; short: a bare path
    configmap://name           the keys of a ConfigMap as files, read-only
    secret://name              the keys of a Secret as files, read-only
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.common.mounts import RESULTS, check_each_mount, results_mount
from tao_sdk.platforms.request import check_text

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9_.:\[\]-]+")
_KINDS = ("pvc", "nfs", "hostpath", "configmap", "secret")
_READ_ONLY_KINDS = ("configmap", "secret")


class Place(NamedTuple):
    """A source that can be mounted, and a folder in it."""

    kind: str
    name: str
    """The name of the claim, server, ConfigMap or Secret; "" for a folder of the node."""
    path: str
    """In a claim without a leading slash, otherwise absolute."""

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}{_slashed(self.path)}"

    def below(self, folder: str) -> Place:
        joined = f"{self.path.rstrip('/')}/{folder}"
        return self._replace(path=joined.lstrip("/") if self.kind == "pvc" else joined)

    def volume(self, name: str, *, read_only: bool = False) -> dict[str, Any]:
        """The volume in the spec of a pod."""
        if self.kind == "pvc":
            claim: dict[str, Any] = {"claimName": self.name}
            if read_only:
                claim["readOnly"] = True
            return {"name": name, "persistentVolumeClaim": claim}
        if self.kind == "nfs":
            nfs = {"server": self.name, "path": self.path, "readOnly": read_only}
            return {"name": name, "nfs": nfs}
        if self.kind == "configmap":
            return {"name": name, "configMap": {"name": self.name}}
        if self.kind == "secret":
            return {"name": name, "secret": {"secretName": self.name}}
        return {"name": name, "hostPath": {"path": self.path}}

    @property
    def sub_path(self) -> str:
        """The folder of the volume to be mounted; "" for all of it."""
        return self.path if self.kind == "pvc" else ""


def parse_place(where: str, source: str) -> Place:
    """Parse a source; raises `ValidationError`."""
    kind, mark, rest = source.partition("://")
    if not mark:
        if source.startswith("/"):
            kind, rest = "hostpath", source
        elif source.startswith((".", "~")):
            raise ValidationError(
                f"{where}: {source} is a relative path; pods see claims (pvc://name), NFS "
                "(nfs://server/export) and absolute paths of their node"
            )
        else:
            kind, rest = "pvc", source
    if kind not in _KINDS:
        raise ValidationError(
            f"{where}: {source} cannot be mounted into a pod; there are "
            + ", ".join(f"{known}://" for known in _KINDS)
        )
    name, slash, path = rest.partition("/")
    path = path.strip("/")
    if ".." in path.split("/"):
        raise ValidationError(f"{where}: {source} has '..' in it; give the folder itself")
    if kind == "hostpath":
        if name or not slash:
            raise ValidationError(f"{where}: {source} must have three slashes: hostpath:///folder")
        return Place(kind, "", f"/{path}")
    if kind == "nfs":
        if not _HOST.fullmatch(name) or not slash:
            raise ValidationError(f"{where}: {source} is not nfs://server/export")
        return Place(kind, name, f"/{path}")
    if not _NAME.fullmatch(name):
        raise ValidationError(f"{where}: {name!r} is not a name that Kubernetes accepts")
    if path and kind != "pvc":
        raise ValidationError(f"{where}: a {kind} has no folders; leave /{path} out")
    return Place(kind, name, path)


def check_mounts(where: str, value: Any) -> tuple[Mount, ...]:
    """Check a list of mounts in any of the usual forms."""
    return check_each_mount(where, value, _check_mount, "pvc://data:/data:ro")


def _check_mount(where: str, value: Any) -> Mount:
    mount = Mount.parse(value, where)
    place = parse_place(where, check_text(f"{where}.source", mount.source))
    target = check_text(f"{where}.target", mount.target).rstrip("/")
    if not target.startswith("/") or ":" in target or ".." in target.split("/"):
        raise ValidationError(
            f"{where}: the target {mount.target!r} must be an absolute path in the container"
        )
    return Mount(str(place), target, mount.read_only or place.kind in _READ_ONLY_KINDS)


def place_of(mount: Mount) -> Place:
    """The source of a checked mount."""
    return parse_place("mounts", mount.source)


def results_place(mounts: Sequence[Mount]) -> Place | None:
    """The source of the writable mount at /results, if there is one."""
    mount = results_mount(mounts)
    return None if mount is None else place_of(mount)


def pod_volumes(
    mounts: Sequence[Mount],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes of the pod, and their mounts in the container."""
    volumes, seen = [], []
    for number, mount in enumerate(mounts):
        place, name = place_of(mount), f"mount-{number}"
        volume = place.volume(name, read_only=mount.read_only)
        if place.kind == "hostpath" and mount.target == RESULTS and not mount.read_only:
            volume["hostPath"]["type"] = "DirectoryOrCreate"
        volumes.append(volume)
        shown: dict[str, Any] = {"name": name, "mountPath": mount.target}
        if mount.read_only:
            shown["readOnly"] = True
        if place.sub_path:
            shown["subPath"] = place.sub_path
        seen.append(shown)
    return volumes, seen


def _slashed(path: str) -> str:
    return f"/{path.lstrip('/')}" if path else ""
