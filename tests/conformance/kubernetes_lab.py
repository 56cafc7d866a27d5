"""The lab of the Kubernetes platform: one test's share of a real cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common_lab import DIE, ContainerLab, files_under, steps_around

from lab.docker.proxy import Proxy
from lab.kubernetes import ALICE, Namespace, RefusedError
from lab.kubernetes.api import name_of
from lab.kubernetes.images import PYTHON
from lab.kubernetes.pki import user_of_certificate, write_kubeconfig
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK
from tao_sdk.platforms.sdk import PlatformSDK

_READABLE = ("pods", "services", "configmaps", "events")


class KubernetesPlatformLab(ContainerLab[KubernetesSDK]):
    """A namespace that its user, who is no administrator, reaches through a proxy of its own."""

    sdk_class = KubernetesSDK
    foreign = ("TAO_K8S_NAMESPACE", "TAO_K8S_CONTEXT", "KUBERNETES_SERVICE_HOST")
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

    def variables(self) -> dict[str, str]:
        return {**super().variables(), "KUBECONFIG": str(self.kubeconfig)}

    @property
    def mounts(self) -> list[str]:
        return ["pvc://results:/results", "pvc://starts:/starts"]

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

    def snapshot(self) -> object:
        """All objects of this lab's namespace but events, with what a change would change."""
        kinds = ("pods", "secrets", "services", "configmaps", "persistentvolumeclaims")
        paths = [self.namespace.jobs, *(f"{self.namespace.path}/{kind}" for kind in kinds)]
        return {
            f"{path}/{name_of(one)}": one
            for path in paths
            for one in self.namespace.api.get(path)["items"]
        }

    def submission_steps(self) -> dict[str, str]:
        arm = (
            f"{DIE}os.environ['HF_TOKEN'] = 'made-up-for-a-secret'\n"
            "from tao_sdk.platforms.kubernetes.submit import Submitter\n"
        )
        return steps_around(arm, "Submitter", ("create_job", "create_companion", "release"))

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
        yield from files_under(self.folder)
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
