"""What is done beside everything else: logs that would be lost with their pods are brought here.

A cluster removes a Job an hour after its end, and a cancelled one with its pods at once. So the
logs of a job that has ended are copied, and those of a job that is being cancelled are followed
until its last line. The same thread looks for what killed clients left behind, once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tao_sdk.errors import TaoError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.background import BackgroundQueue
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import KubernetesClient
from tao_sdk.platforms.kubernetes.leftovers import sweep
from tao_sdk.platforms.kubernetes.pods import has_begun, name_of, node_of
from tao_sdk.platforms.kubernetes.volume_probe import is_on_nodes

_log = logging.getLogger("tao_sdk.kubernetes")
# What is kept of a log that nobody asked for: the end of it, and what comes while it is followed.
_LINES = 20_000
_NO_MORE = "[no more than its last {:,} lines were kept of this log; there may have been others]\n"
_PATIENCE_SECONDS = 30.0


class LogSaver:
    """Brings logs of one cluster to the folder of one store, in threads of its own."""

    def __init__(self, api: KubernetesClient, kept: JobFiles) -> None:
        self._api = api
        """Of its own: what it does is no part of anybody's question."""
        self._kept = kept
        self._ended: BackgroundQueue[tuple[str, JobRef]] = BackgroundQueue(
            "tao-keep-logs", self._save
        )
        self._seen: set[str] = set()
        self._swept: set[str] = set()
        self._following: dict[str, list[threading.Thread]] = {}

    def save(self, job: JobRef, uid: str) -> None:
        """Copy the logs of a job that has ended, some time soon."""
        if job.job_id not in self._seen:
            self._seen.add(job.job_id)
            self._ended.add((uid, job))

    def follow(self, job: JobRef, pods: list[Mapping[str, Any]]) -> None:
        """Read the logs of pods that are about to be stopped, until they are."""
        self._keep_nodes(job, pods)
        threads = []
        for pod in pods:
            if has_begun(pod):
                thread = threading.Thread(
                    target=self._copy,
                    args=(job.native["namespace"], job.job_id, name_of(pod)),
                    kwargs={"follow": True},
                    name=f"tao-follow-{name_of(pod)}",
                    daemon=True,
                )
                thread.start()
                threads.append(thread)
        self._following[job.job_id] = threads

    def finish(self, job_id: str, seconds: float) -> None:
        """Wait until the logs of a stopped job are here."""
        for thread in self._following.pop(job_id, ()):
            thread.join(seconds)

    def close(self) -> None:
        """Let go of connections."""
        self._api.close()

    def _save(self, ended: tuple[str, JobRef]) -> None:
        uid, job = ended
        namespace = job.native["namespace"]
        try:
            self._copy_all(job, uid)
            if namespace not in self._swept:
                self._swept.add(namespace)
                sweep(self._api, namespace)
        except (TaoError, OSError) as error:
            # They are in the cluster for an hour, and read from there.
            _log.warning("after the end of job %s: %s", job.job_id, error)

    def _copy_all(self, job: JobRef, uid: str) -> None:
        namespace, selector = job.native["namespace"], naming.pods_selector(job.job_id, uid)
        listed = self._api.list_all(naming.core_path(namespace, "pods"), labelSelector=selector)
        self._keep_nodes(job, listed.items)
        for pod in listed.items:
            if has_begun(pod) and name_of(pod) not in self._kept.named(
                job.job_id, naming.LOG_SUFFIX
            ):
                self._keep(namespace, job.job_id, name_of(pod), follow=False)

    def _keep_nodes(self, job: JobRef, pods: Sequence[Mapping[str, Any]]) -> None:
        # What they wrote to a folder of the node is there.
        if is_on_nodes(job) and (known := sorted({node_of(pod) for pod in pods} - {""})):
            self._kept.write(job.job_id, naming.NODES_FILE, ["\n".join(known).encode()])

    def _copy(self, namespace: str, job_id: str, pod: str, *, follow: bool) -> None:
        try:
            self._keep(namespace, job_id, pod, follow=follow)
        except (TaoError, OSError) as error:
            _log.warning("the log of pod %s cannot be kept: %s", pod, error)

    def _keep(self, namespace: str, job_id: str, pod: str, *, follow: bool) -> None:
        query = {"container": naming.CONTAINER, "timestamps": "true", "tailLines": str(_LINES)}
        if follow:
            query["follow"] = "true"
        path = naming.core_path(namespace, "pods", f"{pod}/log")
        patience = None if follow else _PATIENCE_SECONDS
        with ExitStack() as opened:
            pieces = opened.enter_context(self._api.stream(path, silence=patience, **query))
            self._kept.write(job_id, f"{pod}{naming.LOG_SUFFIX}", _as_they_come(pieces))


def _as_they_come(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """All that comes; a connection that breaks off ends it, and what came is kept."""
    lines, ends_line = 0, True
    try:
        for piece in pieces:
            lines, ends_line = lines + piece.count(b"\n"), piece.endswith(b"\n")
            yield piece
    except (TaoError, OSError) as error:
        _log.warning("a log was cut short while it was being kept: %s", error)
    if lines >= _LINES:
        yield (b"" if ends_line else b"\n") + _NO_MORE.format(lines).encode()
