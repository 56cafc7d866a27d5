"""A kubeconfig and answers of an API server that may be anything: one job unknown, no other."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fuzzing import DEEP, Findings, broken, counts, mutated

from lab.wire import Call, Reply, WireServer
from tao_sdk.errors import ValidationError
from tao_sdk.job_store import JobStore, NewJob
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.kubeconfig import KubeconfigError, read
from tao_sdk.platforms.kubernetes.log_lines import Position
from tao_sdk.platforms.kubernetes.sdk import KubernetesSDK

HOSTILE, GOOD = (f"{n:08x}-0000-4000-8000-000000000000" for n in (1, 2))
TIME = "2026-01-01T00:00:00Z"
CONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1", "proxy-url": ""}}],
    "users": [
        {"name": "u", "user": {"token": "secret-token", "username": "", "as-groups": ["g"]}},
        {"name": "x", "user": {"exec": {"command": "/none", "env": [{"name": "A", "value": "b"}]}}},
    ],
    "contexts": [
        {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "default"}},
        {"name": "d", "context": {"cluster": "k", "user": "x"}},
    ],
}


@counts(300, 20_000)
def test_no_kubeconfig_raises(tmp_path: Path, count: int) -> None:
    chance, found = random.Random(9), Findings("kubeconfigs")
    path = tmp_path / "config"
    for _ in range(count):
        text = json.dumps(mutated(CONFIG, chance))
        text = broken(text, chance) if chance.random() < 0.4 else text
        text = DEEP if chance.random() < 0.01 else text
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        context = chance.choice(["", "c", "d"])
        found.attempt(text, lambda context=context: read([path]).choose(context), [KubeconfigError])
    found.check()


@counts(2_000, 100_000)
def test_no_cursor_of_a_log_raises(count: int) -> None:
    chance, found = random.Random(11), Findings("cursors")
    for _ in range(count):
        text = broken(f"pod={TIME}/3/{TIME}/1", chance)
        found.attempt(text, lambda text=text: Position.parse(text), [ValidationError])
    found.check()


def job(job_id: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": naming.job_name(job_id),
            "namespace": "default",
            "uid": f"uid-{job_id}",
            "creationTimestamp": TIME,
            "labels": {naming.LABEL: "true", naming.LABEL_JOB: job_id},
            "annotations": {naming.FAILURES_ANNOTATION: "0"},
        },
        "spec": {"completions": 1, "parallelism": 1, "suspend": False, "backoffLimit": 0},
        "status": {
            "active": 1,
            "ready": 1,
            "failed": 0,
            "startTime": TIME,
            "conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": TIME}],
        },
    }


def pod(job_id: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": TIME}}
    return {
        "metadata": {
            "name": "pod",
            "uid": "p",
            "creationTimestamp": TIME,
            "labels": {naming.LABEL_JOB: job_id, naming.CONTROLLER_LABEL: f"uid-{job_id}"},
            "annotations": {naming.INDEX_ANNOTATION: "0"},
        },
        "spec": {"nodeName": "n", "containers": [{"name": naming.CONTAINER}]},
        "status": {
            "phase": "Failed",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": naming.CONTAINER, "restartCount": 0, "state": state}],
        },
    }


class Server:
    """An API server with two running jobs; what it says of one of them may be anything."""

    def __init__(self) -> None:
        self.job: Any = job(HOSTILE)
        self.pod: Any = pod(HOSTILE)
        self.whole: bytes | None = None
        self._wire = WireServer(self._answer)
        self.url, self.close = self._wire.url, self._wire.close

    def _answer(self, call: Call) -> Reply:
        items: list[Any] = []
        wanted = call.query.get("labelSelector", "")
        hostile = not wanted or HOSTILE in wanted or wanted == naming.ALL
        if call.path.endswith("/jobs"):
            items = [self.job] * hostile + [job(GOOD)] * (GOOD in wanted)
        elif call.path.endswith("/pods"):
            items = [self.pod] * hostile
        elif call.path.endswith("/namespaces"):
            items = [{"metadata": {"name": "default", "uid": "k", "creationTimestamp": TIME}}]
        body = {"kind": "List", "metadata": {"resourceVersion": "5"}, "items": items}
        text = json.dumps(body).encode()
        if self.whole is not None and call.path.endswith(("/jobs", "/pods", "/events")):
            text = self.whole
        return Reply(200, text, {"Content-Type": "application/json"})


@contextmanager
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Path]]:
    server = Server()
    try:
        config = {**CONFIG, "clusters": [{"name": "k", "cluster": {"server": server.url}}]}
        (folder / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
        yield server, folder / "s.json"
    finally:
        server.close()


def remember(state: Path, server: Server) -> None:
    """Write the two jobs down, as submitted."""
    state.with_name("s.tao.db").unlink(missing_ok=True)
    with JobStore.for_state_file(state) as store:
        for job_id in (HOSTILE, GOOD):
            native = {
                "namespace": "default",
                "server": server.url,
                "context": "c",
                "cluster": "k",
                "uid": f"uid-{job_id}",
                "nodes": 1,
                "results": "",
                "secret_names": [],
                "ttl": 3600,
                "planned_at": TIME,
            }
            new = NewJob(job_id, "", "", "kubernetes", "kubernetes", job_id, "", native=native)
            store.begin_submissions([new])
            store.confirm_submission(job_id, backend_job_id=naming.job_name(job_id), native=native)


@counts(40, 1_500)
def test_an_odd_object_makes_no_other_job_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    chance, found = random.Random(12), Findings("objects of an API server")
    with serving(tmp_path, monkeypatch) as (server, state):
        remember(state, server)
        with KubernetesSDK(state_file=state, attend=False) as sdk:
            for _ in range(count):
                server.job, server.pod = job(HOSTILE), pod(HOSTILE)
                if chance.random() < 0.6:
                    server.job = mutated(server.job, chance)
                else:
                    server.job["status"].update(active=0, ready=0, failed=1)
                    server.pod = mutated(server.pod, chance)

                def act() -> None:
                    statuses = sdk.get_statuses([HOSTILE, GOOD])
                    assert statuses[GOOD].status == "Running", statuses[GOOD]

                found.attempt([server.job, server.pod], act)
    found.check()


@counts(20, 500)
def test_an_odd_answer_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    chance, found = random.Random(13), Findings("answers of an API server")
    texts = [json.dumps({"kind": "List", "metadata": {}, "items": [job(HOSTILE), job(GOOD)]})]
    texts += ["[]", "null", '"x"', DEEP, '{"items": 5}', '{"items": [[]], "metadata": 3}']
    with serving(tmp_path, monkeypatch) as (server, state):
        remember(state, server)
        with KubernetesSDK(state_file=state, attend=False) as sdk:
            for _ in range(count):
                text = chance.choice(texts)
                text = broken(text, chance) if chance.random() < 0.7 else text
                server.whole = text.encode("utf-8", "surrogatepass")
                found.attempt(text, lambda: sdk.get_statuses([HOSTILE, GOOD]))
    found.check()
