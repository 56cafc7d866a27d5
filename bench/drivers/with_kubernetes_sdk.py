"""KubernetesSDK, ours or the reference's: whichever `tao_sdk` this interpreter has.

The cluster is that of KUBECONFIG, the namespace that of TAO_K8S_NAMESPACE.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from counting import Counter

from tao_sdk.platforms.kubernetes import KubernetesSDK

JOB: dict[str, Any] = {"image": "tao-lab/busybox:1", "command": "true", "gpu_count": 0}
# The open jobs of either, as it calls their state.
OPEN = {"Pending", "Running"}
SPARE_SECONDS = 3.0


class Kubernetes:
    def __init__(self, folder: str) -> None:
        self._state = Path(folder) / "state.json"
        self._sdk = KubernetesSDK(state_file=str(self._state))
        self._ids: list[str] = []

    def submit(self) -> dict[str, float]:
        counter = Counter()
        self._sdk.create_job(**JOB)
        return counter.taken()

    def planned_job(self) -> dict[str, Any]:
        """The Job that a submission makes (ours only), for somebody else to make an equal one."""
        shown = {artefact.name: artefact.text for artefact in self._sdk.plan(**JOB).artefacts}
        job: dict[str, Any] = json.loads(shown["job"])
        return job

    def make_each(self, count: int) -> None:
        """Jobs to ask about, submitted one by one."""
        self._ids = [self._sdk.create_job(**JOB).id for _ in range(count)]

    def make_together(self, count: int) -> None:
        self._ids = [job.id for job in self._sdk.create_jobs([JOB] * count)]

    def ask_each(self) -> dict[str, float]:
        counter = Counter()
        told = [self._sdk.get_job_status(job_id) for job_id in self._ids]
        return _all_open(told, counter.taken())

    def ask_together(self) -> dict[str, float]:
        counter = Counter()
        told = self._sdk.get_statuses(self._ids)
        return _all_open(list(told.values()), counter.taken())

    def ask_anew(self) -> dict[str, float]:
        """The same by a client that knows nothing yet: its configuration, store and connection."""
        counter = Counter()
        sdk = KubernetesSDK(state_file=str(self._state))
        told = sdk.get_statuses(self._ids)
        taken = _all_open(list(told.values()), counter.taken())
        sdk.close()
        return taken

    def wait(self, settling: float, quiet: float) -> None:
        """Begin to wait for all jobs, of which none ends, and let it settle."""
        # Whoever gives up looks once more: not before the silence was measured.
        seconds = settling + quiet + SPARE_SECONDS
        self._waiting = threading.Thread(target=self._wait, args=[seconds], daemon=True)
        self._waiting.start()
        time.sleep(settling)

    def be_quiet(self, quiet: float) -> dict[str, float]:
        """What so many seconds of that waiting cost: processor time, requests."""
        counter, used = Counter(), time.process_time()
        time.sleep(quiet)
        return {"seconds": time.process_time() - used, "requests": float(counter.requests)}

    def give_up(self) -> None:
        self._waiting.join()

    def _wait(self, seconds: float) -> None:
        from tao_sdk.errors import WaitTimeoutError

        try:
            self._sdk.wait_all(self._ids, timeout=seconds)
        except WaitTimeoutError:
            return
        raise AssertionError("a job that cannot start has ended")


def _all_open(told: list[Any], taken: dict[str, float]) -> dict[str, float]:
    if not {status.status for status in told} <= OPEN:
        raise AssertionError(f"a job that has not ended is open: {told[:3]}")
    return taken


def open_in(folder: str) -> Kubernetes:
    return Kubernetes(folder)
