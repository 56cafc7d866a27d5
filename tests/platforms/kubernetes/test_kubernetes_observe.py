"""Many jobs that are asked about again and again: without a request, and never wrong for it."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from api_server import CHUNKED, ApiServer, Certificates, Request, answer, encoded, kubeconfig
from kubernetes_objects import condition, job, pod, terminated
from kubernetes_sdk import LONG, asked, isolate, opened, pods_of
from kubernetes_sdk import job_name as name_of_job

from lab.kubernetes import ALICE, CONTROL_PLANE, KubernetesLab, Namespace, private_cluster
from tao_sdk.job_states import JobState
from tao_sdk.models import Job
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK
from tao_sdk.platforms.kubernetes import watch as watch_module
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.client import KubernetesClient
from tao_sdk.platforms.kubernetes.cluster import Cluster
from tao_sdk.platforms.kubernetes.naming import job_name
from tao_sdk.platforms.kubernetes.observe import Observer
from tao_sdk.platforms.kubernetes.status import are_its_pods

MANY = 25  # more than are asked for by name, also when some have ended
_LISTS = ("/jobs", "/pods")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def sdk(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    with opened(played, tmp_path, monkeypatch) as sdk:
        yield sdk


class Fleet:
    """Many jobs, each with one pod, and how they are asked about."""

    def __init__(self, sdk: KubernetesSDK, namespace: Namespace) -> None:
        namespace.nodes.add("one")
        self.sdk = sdk
        self.jobs: list[Job] = list(sdk.create_jobs([asked()] * MANY))
        self.pods = [pods_of(namespace, job)[0] for job in self.jobs]

    def ask(self) -> dict[str, str]:
        told = self.sdk.get_statuses([job.id for job in self.jobs])
        return {job_id: f"{one.status}: {one.message}" for job_id, one in told.items()}

    def states(self) -> list[str]:
        return [told.partition(":")[0] for told in self.ask().values()]

    def calls(self) -> list[str]:
        """The lists that asking takes; events are asked for where a pod takes long to be made."""
        log = self.sdk.backend.transport.calls
        before = list(log)
        self.ask()
        return [
            call
            for call in list(log)[len(before) :]
            if call.endswith(_LISTS) and "WATCH" not in call
        ]

    def follow(self) -> None:
        """Ask until nothing has to be sent any more."""
        eventually(lambda: not self.calls(), LONG)


def test_who_asks_again_sends_nothing_and_hears_of_changes(
    sdk: KubernetesSDK, played: Namespace
) -> None:
    fleet = Fleet(sdk, played)
    assert len(fleet.calls()) == 2, "Jobs, and pods because they wait"
    fleet.follow()
    assert set(fleet.states()) == {"Pending"}
    first, second, third = fleet.pods[:3]
    played.nodes.hold(first, "ImagePullBackOff", "no such image")
    played.nodes.start(second)
    played.nodes.finish(third, 3)
    eventually(lambda: fleet.states()[:3] == ["Pending", "Running", "Error"], LONG)
    assert "ImagePullBackOff" in fleet.ask()[fleet.jobs[0].id]
    assert "exit code 3" in fleet.ask()[fleet.jobs[2].id]
    assert set(fleet.states()[3:]) == {"Pending"}


def test_a_job_that_was_just_made_or_is_gone_is_asked_for(
    sdk: KubernetesSDK, played: Namespace
) -> None:
    fleet = Fleet(sdk, played)
    fleet.follow()
    for _ in range(3):
        new = sdk.create_job(**asked())
        fleet.jobs.append(new)
        assert fleet.ask()[new.id].startswith("Pending")
        assert "does not know" not in fleet.ask()[new.id]
    played.kubectl("delete", "job", name_of_job(new), "--wait=false", "--cascade=background")
    eventually(lambda: "does not know this job" in fleet.ask()[new.id], LONG)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a minute takes seconds."""
    monkeypatch.setattr(watch_module, "WATCH_SECONDS", 2)
    monkeypatch.setattr(watch_module, "_REFUSED_SECONDS", 1.0)


@pytest.mark.usefixtures("impatient")
def test_a_right_that_was_lost_is_told(sdk: KubernetesSDK, played: Namespace) -> None:
    """A watch that stands is not ended by it; it is renewed before long."""
    fleet = Fleet(sdk, played)
    fleet.follow()
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{played.name}/rolebindings"
    played.api.delete(f"{roles}/edit-{ALICE}")
    eventually(lambda: "cannot list resource" in fleet.ask()[fleet.jobs[0].id], LONG)
    assert set(fleet.states()) == {"Pending"}
    played.bind_role("edit", {"kind": "User", "name": ALICE})
    eventually(lambda: "cannot list resource" not in fleet.ask()[fleet.jobs[0].id], LONG)
    fleet.follow()


@pytest.mark.usefixtures("impatient")
def test_an_api_server_that_was_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        private_cluster(CONTROL_PLANE) as cluster,
        KubernetesLab(cluster).namespace() as namespace,
        opened(namespace, tmp_path, monkeypatch) as sdk,
    ):
        fleet = Fleet(sdk, namespace)
        fleet.follow()
        namespace.nodes.start(fleet.pods[0])
        eventually(lambda: fleet.states()[0] == "Running", LONG)
        cluster.stop_apiserver()
        eventually(lambda: all("cannot reach" in told for told in fleet.ask().values()), LONG)
        assert fleet.states() == ["Running", *["Pending"] * (MANY - 1)]
        cluster.start_apiserver()
        namespace.nodes.finish(fleet.pods[0])
        eventually(lambda: fleet.states()[0] == "Complete", LONG)
        fleet.follow()
        assert fleet.states()[1:] == ["Pending"] * (MANY - 1)
        assert not any("cannot reach" in told for told in fleet.ask().values())


@pytest.mark.parametrize(
    ("status", "pods", "fit"),
    [
        ({"active": 1, "ready": 0}, [pod()], True),
        ({"active": 1, "ready": 0}, [], False),
        ({"active": 2, "ready": 1}, [pod()], True),
        ({"active": 2, "ready": 0}, [pod()], False),
        ({"active": 1, "ready": 0}, [pod(phase="Failed", state=terminated(1))], False),
        ({"active": 1, "ready": 1, "terminating": 1}, [], False),
        ({"conditions": [condition("Failed")]}, [], False),
        ({"conditions": [condition("Failed")]}, [pod(phase="Failed")], True),
    ],
)
def test_pods_that_a_job_does_not_speak_of(status: object, pods: list[object], fit: bool) -> None:
    """Told apart from each other, Jobs and pods may be of different moments."""
    assert are_its_pods(job(status=status), pods) is fit  # type: ignore[arg-type]


class Many:
    """An API server with a thousand running Jobs, whose lists come in pages."""

    def __init__(self) -> None:
        self.refs = [_reference(str(uuid.UUID(int=number))) for number in range(1000)]
        self.jobs = [_running(ref) for ref in self.refs]

    def handle(self, request: Request, connection: ssl.SSLSocket) -> None:
        parts = urlsplit(request.target)
        query = dict(parse_qsl(parts.query))
        assert parts.path.endswith("/jobs")
        if "watch" in query:
            connection.sendall(CHUNKED)
            return  # nothing happens
        first, limit = int(query.get("continue", "0")), int(query["limit"])
        left = len(self.jobs) - first > limit
        metadata = {"resourceVersion": "7", "continue": str(first + limit) if left else ""}
        page = {"metadata": metadata, "items": self.jobs[first : first + limit]}
        connection.sendall(answer(page))


def _reference(job_id: str) -> JobRef:
    native = {"namespace": "lab", "server": "", "cluster": "", "results": ""}
    return JobRef(JobIdentity(job_id, "token"), native)


def _running(ref: JobRef) -> dict[str, Any]:
    labels = {"tao-toolkit": "true", "tao-sdk-job-id": ref.job_id}
    counts = {"active": 1, "ready": 1, "startTime": "2026-04-20T09:00:00Z"}
    return job(name=job_name(ref.job_id), uid=ref.job_id, labels=labels, status=counts)


def test_a_thousand_running_jobs_take_two_calls_and_then_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call for 500 Jobs; no pods, because these Jobs tell enough; the third poll is watched."""
    many = Many()
    certificates = Certificates(tmp_path)
    with closing(ApiServer(certificates, many.handle)) as server:
        authority = {"certificate-authority-data": encoded(certificates.authority)}
        isolate(monkeypatch, kubeconfig(tmp_path / "config", server.url, {}, authority))
        client = KubernetesClient(ClusterAccess.find())
        with closing(Observer(client, Cluster(client))) as observer:
            called = [0]
            for _ in range(3):
                seen = observer.observe(many.refs)
                assert {one.state for one in seen.values()} == {JobState.RUNNING}
                called.append(len(client.calls))
        assert called == [0, 2, 5, 5], list(client.calls)
