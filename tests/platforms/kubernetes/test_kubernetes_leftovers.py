"""After jobs of every ending the cluster holds what it should hold, and nothing else of ours.

The control plane is real, and so are its garbage collector and its clean-up of ended Jobs; nodes
are played, so that every job ends as its turn says.
"""

from __future__ import annotations

import base64
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kubernetes_sdk import LONG, add_quota, asked, isolate, job_name, opened, pods_of, reap_until

import tao_sdk
from lab.kubernetes import Namespace, Object
from lab.kubernetes.api import name_of
from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK

CANARY = "canary-0451-of-the-leftovers"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
TOO_LONG = "true #" + "x" * 200_000
"""A command that travels in a ConfigMap, which the namespace has no room for."""
KINDS = ("secrets", "services", "configmaps", "pods")

# The client dies at a certain request: before it is sent, or when it was answered.
CLIENT = """
import json, os, signal, sys
from tao_sdk.platforms.kubernetes import KubernetesSDK
from tao_sdk.platforms.kubernetes.client import KubernetesClient

state_file, keywords, number, before = sys.argv[1:]
left = int(number)
real = KubernetesClient._request

def request(self, method, *rest, **more):
    global left
    if method == "GET":
        return real(self, method, *rest, **more)
    left -= 1
    if left == 0 and before == "True":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = real(self, method, *rest, **more)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

sdk = KubernetesSDK(state_file=state_file)
sdk.list_jobs()
KubernetesClient._request = request
sdk.create_job(**json.loads(keywords))
"""


class Crowd:
    """Jobs of one namespace, each with an end of its own."""

    def __init__(self, sdk: KubernetesSDK, namespace: Namespace, robot: KubernetesSDK) -> None:
        self.sdk, self.namespace, self.robot = sdk, namespace, robot
        self.kept: set[str] = set()
        """Those whose Jobs the cluster keeps for an hour."""
        self.outcomes: Counter[str] = Counter()

    def endings(self) -> list[Callable[[random.Random], str]]:
        return [
            self.complete,
            self.fail,
            self.cancel_pending,
            self.cancel_running,
            self.refused_by_rights,
            self.refused_by_quota,
            self.refused_as_invalid,
            self.client_killed,
        ]

    def run(self, count: int) -> None:
        endings = self.endings()
        with ThreadPoolExecutor(4) as threads:
            turns = [
                threads.submit(endings[number % len(endings)], random.Random(number))
                for number in range(count)
            ]
            self.outcomes = Counter(turn.result(LONG) for turn in turns)

    def job(self, dice: random.Random, **keywords: Any) -> dict[str, Any]:
        nodes = dice.choice((1, 1, 2))
        return asked(env_vars={"TOKEN": CANARY}, num_nodes=nodes, **keywords)

    # --- the endings; each returns what it was

    def complete(self, dice: random.Random) -> str:
        return self._ended(dice, 0, "Complete")

    def fail(self, dice: random.Random) -> str:
        return self._ended(dice, 1, "Error")

    def _ended(self, dice: random.Random, code: int, status: str) -> str:
        job = self.sdk.create_job(**self.job(dice))
        self.kept.add(job.id)
        nodes = json.loads(self._row(job.id)["request"])["num_nodes"]
        for pod in pods_of(self.namespace, job, nodes):
            self.namespace.nodes.finish(pod, code)
        assert self.sdk.wait(job.id, timeout=LONG).status == status
        return status

    def cancel_pending(self, dice: random.Random) -> str:
        job = self.sdk.create_job(**self.job(dice, node_selector={"no": "such-node"}))
        assert self._canceled(job.id)
        return "cancelled while pending"

    def cancel_running(self, dice: random.Random) -> str:
        job = self.sdk.create_job(**self.job(dice))
        nodes = json.loads(self._row(job.id)["request"])["num_nodes"]
        for pod in pods_of(self.namespace, job, nodes):
            self.namespace.nodes.start(pod)
        eventually(lambda: self.sdk.get_job_status(job.id).status == "Running", LONG)
        assert self._canceled(job.id)
        return "cancelled while running"

    def _canceled(self, job_id: str) -> bool:
        with ThreadPoolExecutor(1) as thread:
            canceling = thread.submit(self.sdk.cancel_job, job_id)
            reap_until(self.namespace, lambda: canceling.done())
        return canceling.result() and self.sdk.get_job_status(job_id).status == "Canceled"

    def refused_by_rights(self, dice: random.Random) -> str:
        """She may make Jobs, and no Secrets."""
        with pytest.raises(SubmissionRejectedError, match='cannot create resource "secrets"'):
            self.robot.create_job(**self.job(dice))
        return "refused: rights"

    def refused_by_quota(self, dice: random.Random) -> str:
        with pytest.raises(SubmissionRejectedError, match="exceeded quota"):
            self.sdk.create_job(**self.job(dice) | {"command": TOO_LONG})
        return "refused: quota"

    def refused_as_invalid(self, dice: random.Random) -> str:
        patch = {"spec": {"template": {"spec": {"dnsPolicy": "Sometimes"}}}}
        with pytest.raises(SubmissionRejectedError, match="Sometimes"):
            self.sdk.create_job(**self.job(dice, overlay=patch))
        return "refused: invalid"

    def client_killed(self, dice: random.Random) -> str:
        """Of the requests that change something there are three or four."""
        request, before = dice.randint(1, 4), dice.random() < 0.5
        state_file = Path(self.sdk.store.path).with_name("state.json")
        words = [str(state_file), json.dumps(self.job(dice)), str(request), str(before)]
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, *words], timeout=LONG, text=True, stderr=subprocess.PIPE
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return "client killed" if done.returncode else "client done"

    # --- afterwards

    def settle(self) -> None:
        """What a next client finds out about those that were killed, and their ends."""
        self.sdk.reconcile()
        for row in self.sdk.store.list_jobs():
            if row["phase"] == "submitted" and row["status"] in ("Pending", "Running"):
                self.kept.add(row["job_id"])
                self._finish(row["job_id"])
        left = [row for row in self.sdk.store.list_jobs() if row["phase"] == "submitting"]
        assert not left

    def _finish(self, job_id: str) -> None:
        job = self.sdk.get_job(job_id)
        assert job is not None
        nodes = json.loads(self._row(job_id)["request"])["num_nodes"]
        for pod in pods_of(self.namespace, job, nodes):
            self.namespace.nodes.finish(pod)
        assert job.wait(timeout=LONG).status == "Complete"

    def _row(self, job_id: str) -> Any:
        row = self.sdk.store.get_job(job_id)
        assert row is not None
        return row


def jobs_of(namespace: Namespace) -> list[Object]:
    found: list[Object] = namespace.api.get(namespace.jobs)["items"]
    return found


def things_of(namespace: Namespace) -> set[str]:
    """All that is there beside what every namespace has, and the Secrets of its accounts."""
    found = set()
    for kind in KINDS:
        for one in namespace.api.get(f"{namespace.path}/{kind}")["items"]:
            if name_of(one) != "kube-root-ca.crt":
                found.add(f"{kind}/{name_of(one)}")
    return found


def owners_of(namespace: Namespace) -> set[str]:
    """The Jobs by which all of it is owned."""
    owners = set()
    for kind in KINDS:
        for one in namespace.api.get(f"{namespace.path}/{kind}")["items"]:
            if name_of(one) != "kube-root-ca.crt":
                [owner] = one["metadata"].get("ownerReferences") or [{"name": name_of(one)}]
                owners.add(owner["name"])
    return owners


def places_of_canary(namespace: Namespace) -> set[str]:
    """The kinds of objects that hold the credential, plain or encoded."""
    words = (CANARY, base64.b64encode(CANARY.encode()).decode())
    found = set()
    for kind in (*KINDS, "events", "persistentvolumeclaims"):
        text = json.dumps(namespace.api.get(f"{namespace.path}/{kind}"))
        if any(word in text for word in words):
            found.add(kind)
    if any(word in json.dumps(namespace.api.get(namespace.jobs)) for word in words):
        found.add("jobs")
    return found


def robot_without_secrets(namespace: Namespace) -> Path:
    """An account that may do with Jobs and pods what it likes."""
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": verbs},
    ]
    group = "rbac.authorization.k8s.io"
    common = {"apiVersion": f"{group}/v1", "metadata": {"name": "jobs-only"}}
    path = f"{ROLES}/namespaces/{namespace.name}"
    namespace.api.create(f"{path}/roles", {**common, "kind": "Role", "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": namespace.name}
    role = {"apiGroup": group, "kind": "Role", "name": "jobs-only"}
    binding = {**common, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]}
    namespace.api.create(f"{path}/rolebindings", binding)
    return namespace.service_account("robot", role="")


def check_nothing_is_left(
    count: int, namespace: Namespace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    namespace.nodes.add("one", cpu="1000")
    add_quota(namespace, count__configmaps="1")  # every namespace has one already
    monkeypatch.setenv("PYTHONPATH", str(Path(tao_sdk.__file__).parents[1]))
    isolate(monkeypatch, robot_without_secrets(namespace))
    with KubernetesSDK(state_file=folder / "robot.json") as robot:
        assert robot.backend.platform == "kubernetes"  # it is the robot from now on
        with opened(namespace, folder, monkeypatch) as sdk:
            crowd = Crowd(sdk, namespace, robot)
            crowd.run(count)
            crowd.settle()
            expected = {f"tao-job-{job_id}" for job_id in crowd.kept}

            def is_as_it_should_be() -> bool:
                namespace.nodes.reap()
                there = {name_of(one) for one in jobs_of(namespace) if not is_fence(one)}
                return there == expected and owners_of(namespace) == expected

            eventually(is_as_it_should_be, LONG)
            assert places_of_canary(namespace) == {"secrets"}
            # The hour is over for which ended Jobs are kept, and the time of those that only
            # took the name of a job that was never submitted.
            for one in jobs_of(namespace):
                path = f"{namespace.jobs}/{name_of(one)}"
                assert one["spec"]["ttlSecondsAfterFinished"] <= 3600
                namespace.api.patch(path, {"spec": {"ttlSecondsAfterFinished": 0}})
            eventually(lambda: not jobs_of(namespace) and not things_of(namespace), LONG)
            assert places_of_canary(namespace) == set()
            listed = namespace.kubectl("get", "jobs,svc,secrets,configmaps,pods", "-o", "name")
            assert listed.split() == ["configmap/kube-root-ca.crt"]
            return crowd.outcomes


def is_fence(job: Object) -> bool:
    return "tao-sdk-fence" in job["metadata"].get("labels", {})


@pytest.mark.seed("003.6")
def test_jobs_of_every_ending_leave_nothing(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lessons W13, W15: Services, Secrets and Jobs accumulate. A sample; `make soak` runs 100."""
    outcomes = check_nothing_is_left(24, played, tmp_path, monkeypatch)
    assert outcomes["Complete"] == outcomes["Error"] == 3


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_hundred_jobs_of_every_ending_leave_nothing(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = check_nothing_is_left(100, played, tmp_path, monkeypatch)
    print(f"what became of 100 jobs: {dict(outcomes)}")
    assert outcomes.total() == 100


def test_who_cancels_an_ended_job_removes_nothing_and_leaves_nothing(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson W13: a Service stayed when the job was over before it was cancelled."""
    played.nodes.add("one")
    with opened(played, tmp_path, monkeypatch) as sdk:
        job = sdk.create_job(**asked(num_nodes=2, env_vars={"TOKEN": CANARY}))
        for pod in pods_of(played, job, 2):
            played.nodes.finish(pod)
        assert job.wait(timeout=LONG).status == "Complete"
        assert job.cancel()
        assert job.status == "Complete"
        path = f"{played.jobs}/{job_name(job)}"
        assert played.api.exists(path)
        played.api.patch(path, {"spec": {"ttlSecondsAfterFinished": 0}})
        eventually(lambda: not jobs_of(played) and not things_of(played), LONG)
