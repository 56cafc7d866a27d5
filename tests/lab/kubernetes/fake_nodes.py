"""Nodes that a test plays: it says what happens to pods, and real controllers react."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from lab.kubernetes.api import Api, Object, RefusedError, name_of
from lab.processes import wait_until

SELECTOR = "lab.tao/namespace"
"""The label by which pods of a namespace find the nodes that were made for it."""
_NODES = "/api/v1/nodes"
_KILLED = 137


class FakeNodes:
    """The nodes of one namespace: no pod of another one is put on them.

    Only what is asked for happens: a pod that was put on a node is `Pending` until the test says
    `start`, and one that is deleted stays until it says `reap`.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace

    # --- nodes

    def add(
        self,
        name: str,
        gpus: int = 8,
        *,
        cpu: str = "64",
        memory: str = "512Gi",
        labels: dict[str, str] | None = None,
        taints: Sequence[dict[str, str]] = (),
    ) -> str:
        """A node that is ready; its name in the cluster."""
        full_name = f"{self._namespace}-{name}"
        marks = {"kubernetes.io/hostname": full_name, SELECTOR: self._namespace, **(labels or {})}
        node = {"metadata": {"name": full_name, "labels": marks}}
        self._api.create(_NODES, {"apiVersion": "v1", "kind": "Node", **node})
        amounts = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "1Ti"}
        if gpus:
            amounts["nvidia.com/gpu"] = str(gpus)
        self._set_status(full_name, {"capacity": amounts, "allocatable": amounts})
        self.set_ready(full_name, ready=True)
        # The controllers would take away a new node's taint within a second.
        self._api.patch(f"{_NODES}/{full_name}", {"spec": {"taints": list(taints)}})
        return full_name

    def set_ready(self, node: str, *, ready: bool) -> None:
        state = {
            "type": "Ready",
            "status": str(ready),
            "reason": "KubeletReady" if ready else "KubeletNotReady",
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": _now(),
        }
        self._set_status(node, {"conditions": [state]})

    def remove_all(self) -> None:
        self._api.delete(_NODES, labelSelector=f"{SELECTOR}={self._namespace}")

    def _set_status(self, node: str, status: Object) -> None:
        self._api.patch(f"{_NODES}/{node}/status", {"status": status})

    # --- pods

    def pods(self, job: str = "") -> list[Object]:
        """The pods of the namespace, or of one job, by name."""
        query = {"labelSelector": f"batch.kubernetes.io/job-name={job}"} if job else {}
        found: list[Object] = self._api.get(self._pods, **query)["items"]
        return sorted(found, key=name_of)

    def wait_for_pods(self, job: str, count: int = 1) -> list[Object]:
        """Wait until so many pods of a job are on nodes and could start; these."""
        found: list[Object] = []

        def are_there() -> bool:
            found[:] = [pod for pod in self.pods(job) if _could_start(pod)]
            return len(found) >= count

        wait_until(are_there, f"job {job} has not {count} pods on nodes")
        return found

    def start(self, pod: Object) -> None:
        self._set(pod, "Running", {"running": {"startedAt": _now()}}, ready=True)

    def hold(self, pod: Object, reason: str, message: str = "") -> None:
        """A container does not start, for example with `ImagePullBackOff`."""
        self._set(pod, "Pending", {"waiting": {"reason": reason, "message": message}})

    def finish(
        self,
        pod: Object,
        code: int = 0,
        reason: str = "",
        *,
        pod_reason: str = "",
        message: str = "",
        conditions: Sequence[Object] = (),
    ) -> None:
        """The container ends; with a reason of its own, as `OOMKilled`, or the pod's, `Evicted`."""
        ended = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "message": message,
            "startedAt": _now(),
            "finishedAt": _now(),
        }
        phase = "Failed" if code else "Succeeded"
        self._set(pod, phase, {"terminated": ended}, pod_reason=pod_reason, conditions=conditions)

    def reap(self) -> None:
        """End the pods that were deleted: until a node says so, they stay."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                try:
                    if pod["status"]["phase"] in ("Pending", "Running"):
                        self.finish(pod, _KILLED)
                    self._api.delete(f"{self._pods}/{name_of(pod)}", gracePeriodSeconds="0")
                except RefusedError as refused:
                    if refused.code != 404:  # it has gone meanwhile
                        raise

    def _set(
        self,
        pod: Object,
        phase: str,
        state: Object,
        *,
        ready: bool = False,
        pod_reason: str = "",
        conditions: Sequence[Object] = (),
    ) -> None:
        is_ready = {"type": "Ready", "status": str(ready), "lastTransitionTime": _now()}
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ]
        status = {
            "phase": phase,
            "reason": pod_reason or None,
            "startTime": pod["status"].get("startTime", _now()),
            "conditions": [is_ready, *conditions],
            "containerStatuses": containers,
        }
        self._api.patch(f"{self._pods}/{name_of(pod)}/status", {"status": status})


def _could_start(pod: Object) -> bool:
    return bool(
        pod["spec"].get("nodeName")
        and pod["status"]["phase"] == "Pending"
        and "deletionTimestamp" not in pod["metadata"]
    )


def _now() -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.isoformat(timespec="seconds").replace("+00:00", "Z")
