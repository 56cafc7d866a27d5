"""Jobs of the SDK in a namespace of the lab: what a test says about them, and looks at."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.kubernetes import ALICE, Namespace, Object
from lab.kubernetes.api import name_of
from tao_sdk import settings
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK

LONG = 120.0
_CLUSTER = ("TAO_K8S_NAMESPACE", "TAO_K8S_CONTEXT", "S3_BUCKET_NAME", "S3_ENDPOINT_URL")


def isolate(monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> None:
    """This process sees one cluster, and nothing of the machine's own settings."""
    for setting in settings.SETTINGS.values():
        if setting.secret or setting.name in _CLUSTER:
            for name in (setting.name, *setting.aliases):
                monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))


@contextlib.contextmanager
def opened(
    namespace: Namespace, folder: Path, monkeypatch: pytest.MonkeyPatch, user: str = ALICE
) -> Iterator[KubernetesSDK]:
    """An SDK as a user of a namespace has it."""
    isolate(monkeypatch, namespace.kubeconfig(user))
    with KubernetesSDK(state_file=folder / "state.json") as sdk:
        yield sdk


def asked(**keywords: Any) -> dict[str, Any]:
    """For `create_job`, where nothing runs but what a test plays."""
    return {"image": "trainer:1", "command": "true", "gpu_count": 0, **keywords}


def job_name(job: Job) -> str:
    return f"tao-job-{job.id}"


def pods_of(namespace: Namespace, job: Job, count: int = 1) -> list[Object]:
    """The pods of a job, on played nodes, by rank."""
    found = namespace.nodes.wait_for_pods(job_name(job), count)
    return sorted(found, key=name_of)


def reap_until(namespace: Namespace, check: Callable[[], bool]) -> None:
    """Wait, while played nodes end the pods that are deleted."""

    def reaped() -> bool:
        namespace.nodes.reap()
        return check()

    eventually(reaped, LONG)


def started(sdk: KubernetesSDK, namespace: Namespace, **keywords: Any) -> tuple[Job, Object]:
    """A job of one pod that runs on a played node."""
    namespace.nodes.add("one")
    job = sdk.create_job(**asked(**keywords))
    [pod] = pods_of(namespace, job)
    namespace.nodes.start(pod)
    eventually(lambda: job.refresh().status == "Running")
    return job, pod


def says(job: Job, words: str) -> bool:
    """Does its message have these words now?"""
    return words in job.refresh().message


def message_of(job: Job) -> str:
    return job.refresh().message


def issue_of(sdk: KubernetesSDK, job: Job) -> dict[str, str]:
    """Why its first pod is not ready."""
    issue: dict[str, str] | None = sdk.get_job_replicas(job.id)[0]["status"]["readiness_issue"]
    assert issue is not None
    return issue


def explained(job: Job) -> dict[str, Any]:
    analysis = job.explain()
    assert analysis is not None
    return analysis


def add_quota(namespace: Namespace, **hard: str) -> None:
    """Limit a namespace, and wait until the limit is in force."""
    path = f"{namespace.path}/resourcequotas"
    spec = {"hard": {name.replace("__", "/").replace("_", "."): n for name, n in hard.items()}}
    body = {"kind": "ResourceQuota", "metadata": {"name": "limit"}, "spec": spec}
    namespace.api.create(path, body)
    eventually(lambda: namespace.api.get(f"{path}/limit").get("status", {}).get("hard"))
