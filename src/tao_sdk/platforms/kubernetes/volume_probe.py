"""Run a shell program on a volume, in a short-lived Job that mounts it.

Only a pod can see a claim. The Job ends itself and the cluster removes it even if this process
dies. It uses the image of a job that used the volume, which nodes usually have, or
TAO_K8S_LOOK_IMAGE.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.command import escape
from tao_sdk.platforms.kubernetes.pods import STUCK, issue_of, name_of, phase_of
from tao_sdk.platforms.kubernetes.volumes import Place, parse_place
from tao_sdk.platforms.volume_programs import END

_MOUNT = "/volume"
_SECONDS = 120.0
_PAUSE_SECONDS = 0.2
_STUCK_SECONDS = 30.0
_TTL_SECONDS = 60
# What a pod needs to be admitted, scheduled and to read what the job wrote.
_POD_FIELDS = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "imagePullSecrets",
    "serviceAccountName",
    "automountServiceAccountToken",
    "runtimeClassName",
    "securityContext",
)

# The key under which a template keeps the security context of the container.
_CONTAINER_CONTEXT = "containerSecurityContext"

# $W: the folders, one per job.
RECORDS = (
    'for j in $W; do for f in "$P/$j"/tao_result.json "$P/$j"/tao_result.*.json; do '
    '[ ! -f "$f" ] || head -c 65536 "$f"; done; done'
)
REMOVE = '[ -e "$P" ] || echo absent; rm -rf "$P" && [ ! -e "$P" ] && echo removed'


def template_of(pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a job's pod spec that later Jobs on its volumes repeat."""
    container = pod_spec["containers"][0]
    found = {name: pod_spec[name] for name in _POD_FIELDS if name in pod_spec}
    if secrets := found.get("imagePullSecrets"):
        # A pull Secret that the SDK made is deleted with its job.
        found["imagePullSecrets"] = [one for one in secrets if not _is_ours(one["name"])]
    if context := container.get("securityContext"):
        found[_CONTAINER_CONTEXT] = context
    return {"image": container["image"], **found}


def is_on_nodes(job: JobRef) -> bool:
    """Whether its results are in folders of the nodes that it ran on."""
    return bool(job.native["results"].startswith("hostpath:"))


class VolumeProbe:
    """Runs programs on the volumes of one cluster."""

    def __init__(self, api: KubernetesClient) -> None:
        self._api = api
        self._used: dict[str, Mapping[str, Any]] = {}
        """The last template, by namespace."""

    def run(
        self,
        namespace: str,
        place: Place,
        program: str,
        template: Mapping[str, Any],
        words: str = "",
        node: str = "",
    ) -> str:
        """The output of a shell program that has the place at $P and `words` at $W.

        "" if the claim or its namespace is gone. A `hostpath` place is mounted on `node`, or on
        the node that the scheduler takes.
        """
        if place.kind == "pvc" and self._is_gone(namespace, place.name):
            return ""
        name = f"tao-look-{uuid.uuid4().hex[:12]}"
        path = naming.jobs_path(namespace, name)
        self._used[namespace] = template
        body = probe_job(name, place, program, template, words)
        if node:
            body["spec"]["template"]["spec"]["nodeName"] = node
        try:
            self._api.create(naming.jobs_path(namespace), body)
        except ApiError as error:
            if error.missing:
                return ""
            raise BackendUnreachableError(
                f"cannot inspect {place}: Kubernetes refuses the Job for it in namespace "
                f"{namespace}: {error.message}"
            ) from error
        try:
            return self._wait(namespace, name, place)
        finally:
            try:
                self._api.delete(path, {"propagationPolicy": "Background"})
            except ApiError as error:
                if not error.missing:
                    raise

    def run_at(self, path: str, namespace: str, program: str) -> str:
        """The output of a program at `pvc://[namespace@]claim/folder`, or another address."""
        if path.startswith("pvc://") and "@" in path:
            namespace, _, rest = path.removeprefix("pvc://").partition("@")
            path = f"pvc://{rest}"
        if "://" not in path:
            raise ValidationError(
                f"{path}: the volume of a path is unknown: give pvc://claim/folder, "
                "nfs://server/export or hostpath:///folder"
            )
        place = parse_place("path", path)
        return self.run(namespace, place, program, self.template_in(namespace))

    def template_in(self, namespace: str) -> Mapping[str, Any]:
        """The template of the newest job of ours there, where no job is named."""
        if chosen := settings.lookup("TAO_K8S_LOOK_IMAGE"):
            return {"image": chosen}
        try:
            listed = self._api.list_all(
                naming.jobs_path(namespace), labelSelector=f"{naming.LABEL}=true"
            ).items
        except ApiError as error:
            raise BackendUnreachableError(error.message) from error
        if not listed:
            return self._used.get(namespace) or {"image": settings.get("TAO_K8S_LOOK_IMAGE")}
        newest = max(listed, key=lambda job: str(job["metadata"]["creationTimestamp"]))
        return template_of(newest["spec"]["template"]["spec"])

    def _is_gone(self, namespace: str, claim: str) -> bool:
        try:
            self._api.get(naming.core_path(namespace, "persistentvolumeclaims", claim))
        except ApiError as error:
            return error.missing
        return False

    def _wait(self, namespace: str, name: str, place: Place) -> str:
        failure = f"cannot inspect {place}"
        ended = ("Succeeded", "Failed")
        pod = wait_for_pod(self._api, namespace, name, ended, failure, _SECONDS)
        path = naming.core_path(namespace, "pods", f"{name_of(pod)}/log")
        return _complete_output(self._api.text(path, container=naming.CONTAINER), place)


def wait_for_pod(
    client: KubernetesClient,
    namespace: str,
    job: str,
    phases: Collection[str],
    failure: str,
    seconds: float,
) -> dict[str, Any]:
    """The pod of a helper Job, once it is in one of these phases; `failure` begins the error."""
    began = time.monotonic()
    pods = naming.core_path(namespace, "pods")
    selector = f"{naming.JOB_NAME_LABEL}={job}"
    cause = "its pod was not created"
    while (waited := time.monotonic() - began) < seconds:
        for pod in client.list_all(pods, labelSelector=selector).items:
            if phase_of(pod) in phases:
                return pod
            if issue := issue_of(pod):
                cause = str(issue)
                if issue.reason in STUCK and waited > _STUCK_SECONDS:
                    raise BackendUnreachableError(f"{failure}: {cause}")
        time.sleep(_PAUSE_SECONDS)
    raise BackendUnreachableError(f"{failure} within {seconds:g} s: {cause}")


def path_in_pod(place: Place) -> str:
    """Where the pod of a probe sees a place."""
    return f"{_MOUNT}/{place.path if place.kind == 'pvc' else _leaf(place.path)}"


def probe_job(
    name: str, place: Place, program: str, template: Mapping[str, Any], words: str
) -> dict[str, Any]:
    # Mount the top of the volume: the place itself may not exist.
    above = place if place.kind == "pvc" else place._replace(path=_above(place.path))
    script = f"{program}; echo; echo {END}"
    container: dict[str, Any] = {
        "name": naming.CONTAINER,
        "image": template["image"],
        "command": ["/bin/sh", "-c", escape(script)],
        "env": [
            {"name": "P", "value": escape(path_in_pod(place))},
            {"name": "W", "value": escape(words)},
        ],
        "volumeMounts": [{"name": "volume", "mountPath": _MOUNT}],
    }
    if context := template.get(_CONTAINER_CONTEXT):
        container["securityContext"] = context
    pod = {
        **{key: value for key, value in template.items() if key in _POD_FIELDS},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [above.volume("volume")],
    }
    labels = {naming.LABEL_HELPER: "true"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(_SECONDS),
            "ttlSecondsAfterFinished": _TTL_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _complete_output(log: str, place: Place) -> str:
    text, end, _ = log.rpartition(f"\n{END}")
    if not end:
        raise BackendUnreachableError(f"the answer about {place} was cut short: {log[-200:]!r}")
    return text


def _above(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "/"


def _leaf(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _is_ours(name: str) -> bool:
    return name.startswith("tao-job-") and name.endswith("-pull")
