"""The lab of the Kubernetes platform: one test's share of a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.docker.images import BUSYBOX
from lab.docker.proxy import Proxy
from lab.kubernetes import ALICE, Namespace, RefusedError
from lab.kubernetes.images import PYTHON
from lab.kubernetes.pki import user_of_certificate, write_kubeconfig
from tao_sdk.models import Job
from tao_sdk.platforms.base import PlatformSDK
from tao_sdk.platforms.conformance import Lab, eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK

_SECRETS = ("ACCESS_KEY", "SECRET_KEY", "HF_TOKEN", "NGC_KEY")
_STORE = ("S3_BUCKET_NAME", "S3_ENDPOINT_URL", "CLOUD_REGION")
_ALIASES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL")
_CLUSTER = ("TAO_K8S_NAMESPACE", "TAO_K8S_CONTEXT", "KUBERNETES_SERVICE_HOST")
_READABLE = ("pods", "services", "configmaps", "events")


def isolate(monkeypatch: pytest.MonkeyPatch, lab: KubernetesPlatformLab) -> None:
    """This process sees the lab's cluster and nothing of the machine's own settings."""
    for name in (*_SECRETS, *_STORE, *_ALIASES, *_CLUSTER):
        monkeypatch.delenv(name, raising=False)
    for name, value in lab.variables().items():
        monkeypatch.setenv(name, value)


class KubernetesPlatformLab(Lab):
    """A namespace that its user, who is no administrator, reaches through a proxy of its own."""

    round_trips = 3  # Jobs; pods, if any wait; events, if any wait for long

    def __init__(self, folder: Path, namespace: Namespace) -> None:
        super().__init__(folder)
        self.namespace = namespace
        self.results = namespace.add_volume("results")
        self.starts = namespace.add_volume("starts")
        cluster = namespace.cluster
        self.proxy = Proxy("127.0.0.1", (cluster.endpoints.host, cluster.endpoints.api))
        self.kubeconfig = folder / "kubeconfig"
        write_kubeconfig(
            self.kubeconfig,
            f"https://127.0.0.1:{self.proxy.port}",
            cluster.layout.pki / "ca.crt",
            user_of_certificate(cluster.layout.pki, ALICE),
            namespace.name,
        )

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self.variables()}

    def variables(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "TAO_SDK_STATE_DIR": str(self.folder / "state"),
        }

    def sdk(self) -> KubernetesSDK:
        return KubernetesSDK(state_file=self.state_file)

    def sdk_source(self) -> str:
        return (
            "from tao_sdk.platforms.kubernetes import KubernetesSDK\n"
            f"sdk = KubernetesSDK(state_file={str(self.state_file)!r})"
        )

    def job(self, script: str) -> dict[str, Any]:
        return {
            "image": BUSYBOX,
            "command": script,
            "gpu_count": 0,
            "mounts": ["pvc://results:/results", "pvc://starts:/starts"],
        }

    def counted_job(self, script: str) -> dict[str, Any]:
        return self.job(f'echo started >> "/starts/$TAO_JOB_ID"; {script}')

    def starts_of(self, job_id: str) -> int:
        path = self.starts / job_id
        return path.read_text().count("started") if path.exists() else 0

    def jobs_in_reality(self) -> set[str]:
        found = {path.name for path in self.starts.iterdir()}
        for job in self.namespace.api.get(self.namespace.jobs)["items"]:
            labels = job["metadata"].get("labels", {})
            if "tao-sdk-job-id" in labels and "deletionTimestamp" not in job["metadata"]:
                found.add(labels["tao-sdk-job-id"])
        return found

    def pending_job(self, sdk: PlatformSDK) -> Job:
        waiting = sdk.create_job(**self.counted_job("true"), node_selector={"no": "such-node"})
        eventually(lambda: "no node can take it" in waiting.refresh().message)
        return waiting

    def data_job(self, script: str) -> dict[str, Any]:
        return {**self.job(script), "image": PYTHON}

    def offer_data(self, name: str, data: bytes) -> str:
        (self.starts / name).write_bytes(data)
        return f"file:///starts/{name}"

    def read_result(self, job: Job, name: str) -> bytes:
        return (self.results / job.id / name).read_bytes()

    @property
    def scratch(self) -> str:
        return "/tmp/scratch"

    def submission_steps(self) -> dict[str, str]:
        arm = (
            "import os, signal\n"
            "os.environ['HF_TOKEN'] = 'made-up-for-a-secret'\n"
            "from tao_sdk.platforms.kubernetes.submitting import Submitting\n"
            "die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        steps = {}
        for method in ("create_job", "create_companion", "release"):
            steps[f"before {method}"] = f"{arm}Submitting.{method} = die"
            steps[f"after {method}"] = (
                f"{arm}real = Submitting.{method}\n"
                f"Submitting.{method} = lambda *a, **k: (real(*a, **k), die())[0]"
            )
        return steps

    def touch_result(self, job: Job, name: str) -> None:
        (self.results / job.id / name).touch()

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        with self.proxy.cut():
            yield

    def forget(self, job: Job, *, with_results: bool) -> None:
        path = f"{self.namespace.jobs}/tao-job-{job.id}"
        api = self.namespace.api
        eventually(lambda: "conditions" in api.get(path).get("status", {}))
        api.delete(path, propagationPolicy="Foreground")
        eventually(lambda: not api.exists(path))
        if with_results:
            (self.results / job.id / "tao_result.json").unlink()

    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        for folder, _, files in os.walk(self.folder):
            for path in (Path(folder) / name for name in files):
                if path.is_file():
                    yield str(path), path.read_bytes()
        # Secrets are where Kubernetes keeps what a pod must know: documented.
        for resource in _READABLE:
            found = self.namespace.api.get(f"{self.namespace.path}/{resource}")
            yield f"the {resource} of the namespace", json.dumps(found).encode()
        jobs = self.namespace.api.get(self.namespace.jobs)
        yield "the Jobs of the namespace", json.dumps(jobs).encode()

    def end_all(self) -> None:
        """Whatever a test left goes with its namespace."""
        self.proxy.close()

    def is_there(self, resource: str, name: str) -> bool:
        """Is there such a Secret, Service, ConfigMap of the namespace?"""
        try:
            self.namespace.api.get(f"{self.namespace.path}/{resource}/{name}")
        except RefusedError as refused:
            if refused.code != 404:
                raise
            return False
        return True
