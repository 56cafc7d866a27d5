"""Inspecting volumes by a short job that mounts one.

Only jobs see all shared storage. The job takes the smallest machine, ends by itself, and is
deleted: by us, or by the server a minute after its end.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from tao_sdk.errors import BackendUnreachableError, CapacityError, TaoError, ValidationError
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.lepton import naming, shapes
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.logs import JobLogs
from tao_sdk.platforms.lepton.status import has_ended, word_of
from tao_sdk.platforms.lepton.volumes import SCHEME, Place, detected
from tao_sdk.platforms.lepton.workspace import Workspace
from tao_sdk.platforms.rest import RefusedError
from tao_sdk.platforms.volume_programs import END

_log = logging.getLogger("tao_sdk.lepton")
_WINDOW = "/window"
_MAX_SECONDS = 300.0
_PAUSE_SECONDS = 0.25
# After the end of the job, its log may be behind.
_LOG_SECONDS = 15.0
_TTL_SECONDS = 60

REMOVE = 'rm -rf "$P" && [ ! -e "$P" ] && echo removed'


class Window(NamedTuple):
    """A mount, and what a job needs to have it."""

    source: str
    path: str
    """The folder of the volume that is mounted."""
    group: str
    image: str
    pull_secrets: tuple[str, ...] = ()


class VolumeProbe:
    """Inspects volumes of one workspace."""

    def __init__(
        self,
        client: LeptonClient,
        workspace: Workspace,
        logs: JobLogs,
    ) -> None:
        self._client = client
        self._workspace = workspace
        self._logs = logs

    def window(self, address: str, image: str) -> tuple[Window, str]:
        """The mount for an address `lepton-volume://volume/folder`, and the folder in it."""
        rest = address.removeprefix(f"{SCHEME}://")
        name, _, folder = rest.partition("/")
        if rest == address or not name or ".." in folder.split("/"):
            raise ValidationError(
                f"{address}: the address of a path needs its volume: give "
                f"{SCHEME}://volume/folder, or s3://bucket/folder"
            )
        for group in self._workspace.groups():
            for volume in self._workspace.volumes(group.id):
                if volume.name == name:
                    may = detected(volume, self._workspace.permissions(name, group.id))
                    return Window(volume.source, may.path, group.id, image), f"/{folder}"
        raise ValidationError(f"{address}: no node group of the workspace has a volume {name}")

    def ask(self, window: Window, folder: str, program: str) -> str:
        """The output of a program that has a folder of the volume as $P."""
        inside = folder.removeprefix(window.path.rstrip("/")) or "/"
        if not f"{folder}/".startswith(f"{window.path.rstrip('/')}/"):
            raise ValidationError(f"{folder}: only {window.path} of the volume may be mounted")
        body = self._body(window, f"{_WINDOW}{inside}", program)
        try:
            made = self._client.create(naming.JOBS, body)
        except RefusedError as error:
            raise BackendUnreachableError(f"cannot inspect {folder}: {error}") from error
        server_id = naming.id_of(made)
        try:
            return self._answer(server_id, folder)
        finally:
            self._remove(server_id)

    def _answer(self, server_id: str, folder: str) -> str:
        job = JobRef(
            JobIdentity(server_id, ""), {"id": server_id, "made_at": int(time.time()), "nodes": 1}
        )
        deadline = time.monotonic() + _MAX_SECONDS
        ended = False
        while time.monotonic() < deadline:
            found = self._client.job(server_id) or {}  # not known at once
            if has_ended(found) and not ended:
                ended = True
                deadline = min(deadline, time.monotonic() + _LOG_SECONDS)
            if ended:
                *lines, last = "", *self._logs.whole(job)
                if last == END:
                    return "\n".join(lines[1:])
            time.sleep(_PAUSE_SECONDS)
        state = "left no answer" if ended else f"is {word_of(found) or 'unknown to Lepton'}"
        raise BackendUnreachableError(f"cannot inspect {folder}: the job for it {state}")

    def _body(self, window: Window, path: str, program: str) -> dict[str, Any]:
        name = f"tao-look-{uuid.uuid4().hex[:20]}"
        place = Place(window.source, window.path, _WINDOW)
        spec: Mapping[str, Any] = {
            "resource_shape": self._shape(window.group),
            "affinity": {"allowed_dedicated_node_groups": [window.group]},
            "container": {
                "image": window.image,
                "command": ["/bin/sh", "-c", f"{program}\necho {END}"],
            },
            "completions": 1,
            "parallelism": 1,
            "envs": [{"name": "P", "value": path}],
            "mounts": [place.payload()],
            "image_pull_secrets": list(window.pull_secrets),
            "ttl_seconds_after_finished": _TTL_SECONDS,
            "log": {"enable_collection": True, "save_termination_logs": True},
        }
        labels = {naming.LABEL_LOOK: "true"}
        return {
            "metadata": {"name": name, "visibility": "private", "labels": labels},
            "spec": dict(spec),
        }

    def _shape(self, group: str) -> str:
        offered, groups = self._workspace.shapes(group), self._workspace.groups()
        try:
            return shapes.choose(offered, groups, 0, "", group).shape
        except CapacityError:
            return shapes.choose(offered, groups, 1, "", group).shape

    def _remove(self, server_id: str) -> None:
        try:
            self._client.delete(naming.below(naming.JOBS, server_id))
        except TaoError as error:
            # The server removes it a minute after its end.
            _log.info("%s stays for a while: %s", server_id, error)
