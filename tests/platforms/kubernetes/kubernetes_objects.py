"""Objects in the shape in which a cluster (1.33) tells them, for tests of what is pure."""

from __future__ import annotations

from typing import Any

from tao_sdk.platforms.kubernetes.manifests import Objects, ResolvedJob, build
from tao_sdk.platforms.kubernetes.options import KubernetesOptions
from tao_sdk.platforms.request import JobRequest, build_request

JOB_ID = "0c2f6c1e-98a5-4a0c-9e1c-3c8a2f1d7b55"
NAME = f"tao-job-{JOB_ID}"
TOKEN = "7d1b3c"  # noqa: S105 - tells submissions apart


def request(**keywords: Any) -> JobRequest:
    given: dict[str, Any] = {
        "image": "busybox:1",
        "command": "echo hello",
        "gpu_count": 0,
        "env_vars": None,
        **keywords,
    }
    first = {name: given.pop(name) for name in ("image", "command", "gpu_count", "env_vars")}
    return build_request(KubernetesOptions, **first, keywords=given, platform="kubernetes")


def objects(*, login: Any = None, credentials: Any = None, **keywords: Any) -> Objects:
    asked = request(**keywords)
    resolved = ResolvedJob(
        job_id=JOB_ID,
        token=TOKEN,
        namespace="lab",
        gpu_count=asked.gpu_count,
        credentials=credentials or {},
        runner={},
        stop_seconds=10,
        login=login,
    )
    return build(asked, resolved)


def job(*, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": NAME,
            "namespace": "lab",
            "uid": "job-uid",
            "creationTimestamp": "2026-04-20T09:00:00Z",
            "labels": {"tao-toolkit": "true", "tao-sdk-job-id": JOB_ID},
            **metadata,
        },
        "spec": {"completions": 1, "parallelism": 1, **(spec or {})},
        "status": status or {},
    }


def condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Any:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-04-20T09:09:00Z",
    }


def pod(
    name: str = f"{NAME}-x7k2p",
    *,
    phase: str = "Pending",
    rank: int | None = None,
    node: str = "",
    state: Any = None,
    **status: Any,
) -> dict[str, Any]:
    annotations = {} if rank is None else {"batch.kubernetes.io/job-completion-index": str(rank)}
    containers = [] if state is None else [{"name": "tao", "state": state, "restartCount": 0}]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "creationTimestamp": "2026-04-20T09:00:00Z",
            "annotations": annotations,
            "labels": {"job-name": NAME},
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }


def terminated(code: int, reason: str = "Error", ended: str = "2026-04-20T09:05:00Z") -> Any:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": "2026-04-20T09:01:00Z",
            "finishedAt": ended,
        }
    }


def waiting(reason: str, message: str = "") -> Any:
    return {"waiting": {"reason": reason, "message": message}}


def warning(about: str, reason: str, message: str, at: str = "2026-04-20T09:01:00Z") -> Any:
    return {
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
        "involvedObject": {"uid": about},
        "metadata": {"creationTimestamp": at},
    }


UNSCHEDULABLE = condition(
    "PodScheduled",
    "Unschedulable",
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    status="False",
)
