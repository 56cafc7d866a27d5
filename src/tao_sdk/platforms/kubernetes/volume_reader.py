"""A short-lived pod that reads a volume for us: programs of `platforms/remote` run in it.

The pod mounts the volume read-only, with the identity of the job that wrote there and no other
rights. It is a Job: it ends by itself when no program ran in it for some minutes, so a killed
client leaves it for minutes, and the cluster removes the Job after its end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, PlatformError, TaoError, ValidationError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.pods import end_of, name_of, phase_of
from tao_sdk.platforms.kubernetes.volume_probe import path_in_pod, probe_job, wait_for_pod
from tao_sdk.platforms.kubernetes.volumes import Place
from tao_sdk.platforms.remote.framing import Programs, Section
from tao_sdk.platforms.remote.results import RemoteResults
from tao_sdk.platforms.remote.streams import AnswerStream, CutOffError
from tao_sdk.platforms.rest import WebSocket
from tao_sdk.results.sources import Entry

_log = logging.getLogger("tao_sdk.kubernetes")
_PROGRAMS = Programs(Path(__file__).parent / "programs")
# Messages of an exec session: one byte for the channel, then data.
_PROTOCOL = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_MESSAGE_BYTES = 32 * 1024
_COMPLAINT_BYTES = 4096
_SECONDS = 120.0
# How long the pod stays when nothing runs in it; it looks once in this time.
IDLE_SECONDS = 120
# How long after its use a pod surely runs.
_SURE_SECONDS = IDLE_SECONDS / 2
_LONGEST_SECONDS = 24 * 3600
_START_SECONDS = 300.0
_SCRATCH = "/tao-reader"
_RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}


class VolumeReader:
    """Runs programs beside a place on a volume, in a pod that it starts when it needs one."""

    def __init__(
        self,
        api: KubernetesClient,
        namespace: str,
        place: Place,
        template: Mapping[str, Any],
        node: str = "",
    ) -> None:
        """`template` is that of the job which wrote there, see `volume_probe.template_of`."""
        self._api = api
        self._namespace = namespace
        self._place = place
        self._image = settings.lookup("TAO_K8S_LOOK_IMAGE") or template["image"]
        self._template = {**template, "image": self._image}
        self._node = node
        self._lock = threading.Lock()
        self._job = ""
        self._pod = ""
        self._used_at = 0.0

    @property
    def folder(self) -> str:
        """The place, as programs see it."""
        return path_in_pod(self._place)

    def run(
        self,
        program: str,
        variables: Mapping[str, str] | None = None,
        payload: bytes = b"",
        *,
        seconds: float = _SECONDS,
    ) -> list[Section]:
        """A program's answer."""
        sent = _PROGRAMS.call((program, variables or {}))
        with self._session(sent.source, payload, seconds) as session:
            answer = b"".join(iter(session.read, b""))
        sections = sent.sections(answer)
        if sections is None:
            raise self._cut_off(session)
        if sections[0].name == "lacks":
            raise PlatformError(
                f"cannot read {self._place}: image {self._image} has no GNU {sections[0].words}; "
                "name one that has find, xargs, tar and sha256sum of GNU in TAO_K8S_LOOK_IMAGE"
            )
        return sections

    @contextlib.contextmanager
    def stream(
        self, program: str, variables: Mapping[str, str] | None = None, payload: bytes = b""
    ) -> Iterator[AnswerStream]:
        """A program's answer, as it comes."""
        sent = _PROGRAMS.call((program, variables or {}))
        with self._session(sent.source, payload, _SECONDS) as session:
            answer = AnswerStream(sent, session.read)
            try:
                answer.next_section()
                yield answer
            except CutOffError:
                raise self._cut_off(session) from None

    def close(self) -> None:
        """Remove the pod; if that fails, it ends by itself."""
        with self._lock:
            job, self._job, self._pod = self._job, "", ""
        try:
            self._delete(job)
        except PlatformError as error:
            _log.warning("Job %s is left to end by itself: %s", job, error)

    def _cut_off(self, session: _Session) -> BackendUnreachableError:
        return BackendUnreachableError(
            f"{self._place}: the answer of pod {self._pod} was cut short: {session.complaint()}"
        )

    @contextlib.contextmanager
    def _session(self, source: bytes, payload: bytes, silence: float) -> Iterator[_Session]:
        with self._lock:
            self._ensure_pod()
            self._used_at = time.monotonic()
            pod = self._pod
        text = _PROGRAMS.read("exec")
        words = ["/bin/sh", "-c", text, source.decode(), str(len(payload))]
        try:
            socket = self._api.websocket(
                naming.core_path(self._namespace, "pods", f"{pod}/exec"),
                _PROTOCOL,
                silence=silence,
                container=naming.CONTAINER,
                command=words,
                stdin="true",
                stdout="true",
                stderr="true",
            )
        except ApiError as error:
            raise self._refused(error) from error
        with socket:
            session = _Session(socket)
            session.send(payload)
            yield session
        self._used_at = time.monotonic()

    def _refused(self, error: ApiError) -> PlatformError:
        if error.forbidden:
            return PlatformError(
                f"cannot read {self._place}: you may not run programs in pods of namespace "
                f"{self._namespace} (pods/exec, in the role `edit`): {error.message}"
            )
        return BackendUnreachableError(f"cannot read {self._place}: {error.message}")

    # ------------------------------------------------------------------ the pod

    def _ensure_pod(self) -> None:
        if self._pod and time.monotonic() - self._used_at < _SURE_SECONDS:
            return
        if self._pod and self._is_running():
            return
        self._delete(self._job)
        self._job = self._pod = ""
        self._require_claim()
        name = f"tao-read-{uuid.uuid4().hex[:12]}"
        body = reader_job(name, self._place, self._template, self._node)
        try:
            self._api.create(naming.jobs_path(self._namespace), body)
        except ApiError as error:
            raise PlatformError(
                f"cannot read {self._place}: Kubernetes refuses the Job for it in namespace "
                f"{self._namespace}: {error.message}"
            ) from error
        self._job = name
        try:
            self._pod = self._wait(name)
        except BaseException:
            self._job = ""
            self._delete(name)
            raise

    def _require_claim(self) -> None:
        if self._place.kind != "pvc":
            return
        claim = self._place.name
        try:
            self._api.get(naming.core_path(self._namespace, "persistentvolumeclaims", claim))
        except ApiError as error:
            if error.missing:
                raise ValidationError(
                    f"cannot read {self._place}: there is no claim {claim} in namespace "
                    f"{self._namespace} (any more)"
                ) from error
            if not error.forbidden:
                raise

    def _is_running(self) -> bool:
        try:
            pod = self._api.get(naming.core_path(self._namespace, "pods", self._pod))
        except ApiError as error:
            if error.missing:
                return False
            raise
        return phase_of(pod) == "Running" and "deletionTimestamp" not in pod["metadata"]

    def _wait(self, job: str) -> str:
        """The name of the pod, once it runs."""
        failure = f"cannot read {self._place}"
        phases = ("Running", "Succeeded", "Failed")
        pod = wait_for_pod(self._api, self._namespace, job, phases, failure, _START_SECONDS)
        if phase_of(pod) != "Running":
            raise BackendUnreachableError(f"{failure}: its pod ended: {end_of(pod).reason}")
        return name_of(pod)

    def _delete(self, job: str) -> None:
        if not job:
            return
        path = naming.jobs_path(self._namespace, job)
        try:
            self._api.delete(path, {"propagationPolicy": "Background"})
        except ApiError as error:
            if not error.missing:
                raise


class VolumeResults(RemoteResults):
    """The results of a job, read by a pod beside them."""

    def __init__(self, reader: VolumeReader, job: JobRef) -> None:
        super().__init__(reader, job.results_dir, reader.folder, "the user of its pods", "there")
        self._pod = reader

    def entries(self) -> Iterator[Entry]:
        try:
            yield from super().entries()
        except TaoError:
            self._pod.close()
            raise

    def holds(self, folder: Path) -> bool:  # noqa: ARG002 - a volume has no path on this machine
        return False

    def all_fetched(self) -> None:
        self._pod.close()


class _Session:
    """One program that runs in a pod."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._stderr = b""
        self._status = b""

    def send(self, payload: bytes) -> None:
        for start in range(0, len(payload), _MESSAGE_BYTES):
            self._socket.send(bytes([_STDIN]) + payload[start : start + _MESSAGE_BYTES])

    def read(self) -> bytes:
        """The next bytes of its output; empty at the end."""
        while message := self._socket.receive():
            channel, data = message[0], message[1:]
            if channel == _STDOUT and data:
                return data
            if channel == _STDERR:
                self._stderr = (self._stderr + data)[-_COMPLAINT_BYTES:]
            elif channel == _STATUS:
                self._status += data
        return b""

    def complaint(self) -> str:
        """What is known about an end that came too early."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        if lines:
            return lines[-1]
        with contextlib.suppress(ValueError):
            return str(json.loads(self._status).get("message", "")) or "the connection was lost"
        return "the connection was lost"


def reader_job(
    name: str, place: Place, template: Mapping[str, Any], node: str = ""
) -> dict[str, Any]:
    """The Job of a reader; it passes the Pod Security level `restricted` where its job did."""
    job = probe_job(name, place, _PROGRAMS.read("reader").rstrip(), template, "")
    job["spec"]["activeDeadlineSeconds"] = _LONGEST_SECONDS
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    container |= {
        "env": [
            {"name": "SCRATCH", "value": _SCRATCH},
            {"name": "IDLE_SECONDS", "value": str(IDLE_SECONDS)},
            # A node's default runtime may show its GPUs to every container.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        ],
        "resources": _RESOURCES,
        "securityContext": {
            **container.get("securityContext", {}),
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    for mount in container["volumeMounts"]:
        mount["readOnly"] = True
    container["volumeMounts"].append({"name": "scratch", "mountPath": _SCRATCH})
    pod["volumes"].append({"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}})
    pod["automountServiceAccountToken"] = False
    identity = {"seccompProfile": {"type": "RuntimeDefault"}, **pod.get("securityContext", {})}
    if identity.get("runAsUser"):
        identity["runAsNonRoot"] = True
    pod["securityContext"] = identity
    if node:
        pod["nodeName"] = node
    return job
