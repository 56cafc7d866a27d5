"""The `kubernetes` client, used bare: what a Job, or a look at many, costs without an SDK."""

from __future__ import annotations

import os
import uuid
from typing import Any

from counting import Counter
from kubernetes import client, config


class Bare:
    def __init__(self) -> None:
        config.load_kube_config()  # type: ignore[no-untyped-call]  # it has no types
        # Its types know neither dictionaries nor answers that are not read into objects.
        self._batch: Any = client.BatchV1Api()
        self._core: Any = client.CoreV1Api()
        self._namespace = os.environ["TAO_K8S_NAMESPACE"]

    def submit(self, job: dict[str, Any]) -> dict[str, float]:
        """Create an equal Job: a plain dictionary, the form that costs this client least."""
        named = {**job, "metadata": {**job["metadata"], "name": f"bare-{uuid.uuid4()}"}}
        counter = Counter()
        self._batch.create_namespaced_job(self._namespace, named)
        return counter.taken()

    def list_raw(self, pods: bool) -> dict[str, float]:
        """What the server says about all Jobs (and pods), received and not looked at."""
        counter = Counter()
        _receive(self._batch.list_namespaced_job(self._namespace, _preload_content=False))
        if pods:
            _receive(self._core.list_namespaced_pod(self._namespace, _preload_content=False))
        return counter.taken()

    def list_parsed(self, pods: bool) -> dict[str, float]:
        """The same as objects."""
        counter = Counter()
        self._batch.list_namespaced_job(self._namespace)
        if pods:
            self._core.list_namespaced_pod(self._namespace)
        return counter.taken()


def _receive(answer: Any) -> None:
    answer.read()
    answer.release_conn()


def open_in(_folder: str) -> Bare:
    return Bare()
