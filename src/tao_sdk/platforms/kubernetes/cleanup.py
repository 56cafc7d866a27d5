"""What an attending process does: save logs, and remove what would stay for ever.

The cluster removes a Job an hour after its end, and a cancelled one with its pods at once. So the
logs of ended jobs are copied beside the store, and those of a job that is being cancelled are
followed to their last line.

A client that is killed while it submits leaves a job that never started, with the job's
credentials. The process that has its store settles it; if the store is lost, `sweep` removes the
job an hour later. `sweep` also removes ended TrainJobs, which Kubernetes keeps for ever.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

from tao_sdk.errors import BackendUnreachableError, TaoError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.common.times import parse_time
from tao_sdk.platforms.common.ttl_cache import TtlCache
from tao_sdk.platforms.kubernetes import kinds, naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.logs import open_log
from tao_sdk.platforms.kubernetes.observe import list_pods
from tao_sdk.platforms.kubernetes.pods import has_begun, name_of, node_of
from tao_sdk.platforms.kubernetes.status import conditions_of
from tao_sdk.platforms.kubernetes.submit import Submitter
from tao_sdk.platforms.kubernetes.volume_probe import is_on_nodes

_log = logging.getLogger("tao_sdk.kubernetes")
# A log that no process has asked for is not kept whole: its end, and what comes while it is
# followed.
_LINES = 20_000
_NO_MORE = "[no more than its last {:,} lines were kept of this log; there may have been others]\n"
# A caller waits for the logs: so many are copied at once, and those not begun in time come later.
_PARALLEL_COPIES = 8
_COPY_SECONDS = 20.0
_LAST_LINES_SECONDS = 5.0
# A job is stopped after this time even if its log is not open.
_OPENING_SECONDS = 10.0
# A submission takes seconds, whatever the clocks of client and cluster say.
ABANDONED = timedelta(hours=1)
_SWEEP_SECONDS = 600.0
# The kinds of objects to look at, and which of them.
_SWEPT = {
    kinds.JOB: naming.LABEL_SUBMITTING,
    kinds.JOBSET: naming.LABEL_SUBMITTING,
    kinds.TRAINING_RUNTIME: naming.LABEL_SUBMITTING,
    kinds.TRAINJOB: naming.ALL,
}


class Cleanup:
    """Acts for the ended jobs of one store in one cluster."""

    def __init__(self, client: KubernetesClient, files: JobFiles) -> None:
        self._client = client
        self._files = files
        self._following: dict[str, list[threading.Thread]] = {}
        self._swept: TtlCache[bool] = TtlCache(_SWEEP_SECONDS)
        """By namespace."""

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        """Save the logs of ended jobs; the ids of those of which nothing is left to do."""
        give_up_at = time.monotonic() + _COPY_SECONDS
        with ThreadPoolExecutor(_PARALLEL_COPIES, "tao-save-logs") as threads:
            saved = threads.map(lambda job: self._save(job, give_up_at), jobs)
            finished = [job.job_id for job, done in zip(jobs, saved, strict=True) if done]
        for namespace in {job.native["namespace"] for job in jobs}:
            if not self._swept.has(namespace):
                self._swept.put(namespace, True)
                try:
                    sweep(self._client, namespace)
                except TaoError as error:
                    _log.warning("cannot sweep namespace %s: %s", namespace, error)
        return finished

    def follow(self, job: JobRef, pods: Sequence[Mapping[str, Any]]) -> None:
        """Read the logs of pods that are about to be stopped, in threads, until they are.

        Returns when the logs are open: the cluster may remove a stopped pod at once.
        """
        self._save_nodes(job, pods)
        threads, opened = [], []
        for pod in filter(has_begun, pods):
            opened.append(threading.Event())
            args = job, pod, opened[-1]
            threads.append(threading.Thread(target=self._copy, args=args, daemon=True))
            threads[-1].start()
        for event in opened:
            event.wait(_OPENING_SECONDS)
        self._following[job.job_id] = threads

    def _save(self, job: JobRef, give_up_at: float) -> bool:
        """Copy the logs of a job; False if a later attempt may achieve more."""
        if time.monotonic() > give_up_at:
            return False
        last_lines_at = time.monotonic() + _LAST_LINES_SECONDS
        for thread in self._following.pop(job.job_id, ()):
            thread.join(max(0.0, last_lines_at - time.monotonic()))
        try:
            pods = list_pods(self._client, job)
        except TaoError as error:
            _log.warning("cannot save the logs of job %s: %s", job.job_id, error)
            return not isinstance(error, BackendUnreachableError)
        self._save_nodes(job, pods)
        saved = self._files.named(job.job_id, naming.LOG_SUFFIX)
        missing = [pod for pod in pods if has_begun(pod) and name_of(pod) not in saved]
        unread = [pod for pod in missing if not self._copy(job, pod)]
        return not unread

    def _save_nodes(self, job: JobRef, pods: Sequence[Mapping[str, Any]]) -> None:
        # Results in a folder of the node are on these.
        if is_on_nodes(job) and (known := sorted({node_of(pod) for pod in pods} - {""})):
            self._files.write(job.job_id, naming.NODES_FILE, ["\n".join(known).encode()])

    def _copy(
        self, job: JobRef, pod: Mapping[str, Any], opened: threading.Event | None = None
    ) -> bool:
        """Save a pod's log; follow it if `opened` is given, which is set once that has begun."""
        path = naming.core_path(job.native["namespace"], "pods", f"{name_of(pod)}/log")
        try:
            try:
                stream = open_log(self._client, path, last=_LINES, follow=opened is not None)
            finally:
                if opened is not None:
                    opened.set()
            if stream is not None:
                with stream:
                    name = f"{name_of(pod)}{naming.LOG_SUFFIX}"
                    # The pod of a log that is followed is being removed: its end may not come
                    # again. Any other log that breaks off is copied by a later attempt.
                    pieces = stream if opened is None else _until_cut_short(stream)
                    self._files.write(job.job_id, name, _with_note(pieces))
        except (TaoError, OSError) as error:
            _log.warning("cannot save the log of pod %s: %s", name_of(pod), error)
            # If the cluster answered, it is the pod's node that cannot be asked.
            unreachable = isinstance(error, BackendUnreachableError)
            return not unreachable or isinstance(error.__cause__, ApiError)
        return True


def sweep(client: KubernetesClient, namespace: str, abandoned: timedelta = ABANDONED) -> None:
    """Remove submissions that were never completed, and ended TrainJobs after `ttl_seconds`."""
    now = datetime.now(timezone.utc)
    for kind, selector in _SWEPT.items():
        try:
            listed = client.list_all(kind.path(namespace), labelSelector=selector).items
        except ApiError as error:
            if error.missing or error.forbidden:
                continue  # the cluster has no such kind, or we may not look
            raise
        for item in listed:
            if _is_abandoned(item, now - abandoned) or _is_over(item, now):
                try:
                    # Not if it has changed since: its client may be alive.
                    Submitter(client).take_back({**item, "kind": kind.kind}, version=True)
                except ApiError as error:
                    _log.warning("%s %s stays: %s", kind.kind, name_of(item), error)


def _is_abandoned(root: Mapping[str, Any], since: datetime) -> bool:
    metadata = root["metadata"]
    return (
        naming.LABEL_SUBMITTING in metadata["labels"]
        and parse_time(metadata["creationTimestamp"]) <= since
    )


def _is_over(root: Mapping[str, Any], now: datetime) -> bool:
    """Whether it is a TrainJob whose time after its end is over."""
    ttl = (root["metadata"].get("annotations") or {}).get(naming.TTL_ANNOTATION)
    ends = [
        parse_time(condition["lastTransitionTime"])
        for name, condition in conditions_of(root).items()
        if name in ("Complete", "Failed")
    ]
    return ttl is not None and bool(ends) and now >= max(ends) + timedelta(seconds=int(ttl))


def _until_cut_short(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of a log. If the connection breaks off, what came until then is kept."""
    try:
        yield from pieces
    except BackendUnreachableError as error:
        _log.warning("a log was cut short while it was saved: %s", error)


def _with_note(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of a log, and a last line if earlier lines may have been left out."""
    lines, ends_line = 0, True
    for piece in pieces:
        lines, ends_line = lines + piece.count(b"\n"), piece.endswith(b"\n")
        yield piece
    if lines >= _LINES:
        yield (b"" if ends_line else b"\n") + _NO_MORE.format(lines).encode()
