"""Jobs and pods of a namespace, kept up to date by the API server.

A list, then a watch from its version on: the server reports every change, and by bookmarks the
version reached. A server forgets old versions; then the watch begins with another list.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from tao_sdk.errors import BackendUnreachableError, TaoError
from tao_sdk.platforms.capabilities import PollBackoff
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient, Stream
from tao_sdk.platforms.kubernetes.status import is_half_made

# The server ends a watch after this time, and a new one continues: if it stays silent for longer,
# the connection is dead.
WATCH_SECONDS = 60
OVERDUE_SECONDS = 15.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
# A watch that ends sooner than this counts as one that failed.
_SHORT_WATCH_SECONDS = 1.0
_CLOSING_SECONDS = 5.0
# Longer than any caller pauses between two polls.
_UNUSED_SECONDS = 900.0

# Pods that tell more than their Job: they neither run nor have succeeded.
TELLING = "status.phase!=Running,status.phase!=Succeeded"
# A second poll within this time starts the watches.
_SOON_SECONDS = 120.0
# After a refusal, polls are answered by lists for this time.
_REFUSED_SECONDS = 60.0

# A job that is not there is missing for good only after a while: that takes polls.
_POLL_SECONDS = 10.0
# While all jobs are there and no change is reported, none has ended. Poll all the same: a process
# may have died between creating a Job and noting that in the store.
_WATCHED_POLL_SECONDS = 300.0
# The shortest delay between polls when many jobs change one after the other.
_SETTLING_SECONDS = 0.1

_log = logging.getLogger("tao_sdk.kubernetes")

Object = dict[str, Any]
Objects = dict[str, Object]


class NamespaceCache:
    """Our Jobs of one namespace, and their pods that tell more than they do.

    The watches are independent, so a Job and its pods may be of different moments: a caller that
    needs both must check that they match, and ask the server if they do not.
    """

    def __init__(self, api: KubernetesClient, namespace: str) -> None:
        self._jobs = Watch(api, naming.jobs_path(namespace), _trimmed_job, labelSelector=naming.ALL)
        self._pods = Watch(
            api,
            naming.core_path(namespace, "pods"),
            _trimmed_pod,
            labelSelector=naming.ALL,
            fieldSelector=TELLING,
        )
        self._lock = threading.Lock()
        self._waiting = 0
        self._polled_at: float | None = None
        self._is_polled_often = False
        self._refused_at: float | None = None

    def note_poll(self) -> None:
        """A poll of many jobs: the second one within 120 s switches from lists to watches."""
        now = time.monotonic()
        before, self._polled_at = self._polled_at, now
        self._is_polled_often = before is not None and now - before <= _SOON_SECONDS

    def jobs(self) -> list[Object] | None:
        """All our Jobs; None if a list is needed."""
        return self._items_of(self._jobs)

    def pods(self) -> list[Object] | None:
        """Their pods that tell more than they do; None if a list is needed."""
        return self._items_of(self._pods)

    def join(self) -> None:
        """Keep the watches for a caller that waits, until it leaves."""
        with self._lock:
            self._waiting += 1

    def leave(self) -> None:
        with self._lock:
            self._waiting -= 1
            is_used = self._waiting or self._is_polled_often
        if not is_used:
            self.close()

    def wait(self, changes: int, seconds: float) -> int:
        """Wait until Jobs have changed more often than `changes`; returns how often they have."""
        self._jobs.wait(changes, seconds)
        return self._jobs.changes

    def close(self) -> None:
        self._jobs.close()
        self._pods.close()

    def _items_of(self, watch: Watch) -> list[Object] | None:
        refused = self._refused_at
        if refused is not None and time.monotonic() - refused < _REFUSED_SECONDS:
            return None
        if not (self._waiting or self._is_polled_often):
            return None
        try:
            return list(watch.snapshot().values())
        except ApiError:
            # A role may allow lists and no watches; a server that has just started allows nothing.
            self._refused_at = time.monotonic()
            self.close()
        except BackendUnreachableError:
            pass  # the watch tries again; meanwhile a list shows the reason
        return None


class WatchBackoff(PollBackoff):
    """Delays that end when a Job of ours changes. Without a watch, ordinary ones."""

    def __init__(
        self,
        cache: Callable[[], NamespaceCache | None],
        job_ids: Collection[str],
        longest: float,
    ) -> None:
        """`cache` is None if the jobs are in several namespaces."""
        super().__init__(longest)
        self._find_cache = cache
        self._names = frozenset(map(naming.job_name, job_ids))
        self._cache: NamespaceCache | None = None
        self._changes = 0
        self._sees_all = False

    @property
    def longest(self) -> float:
        if self._cache is None:
            return self._longest
        return _WATCHED_POLL_SECONDS if self._sees_all else _POLL_SECONDS

    def after(self, delay: float) -> float:
        return self.longest if self._sees_all else super().after(delay)

    def pause(self, seconds: float) -> None:
        if self._cache is None:
            self._cache = self._find_cache()
            if self._cache is None:
                time.sleep(seconds)
                return
            self._cache.join()
        time.sleep(min(seconds, _SETTLING_SECONDS))
        jobs = self._cache.jobs()
        if jobs is not None:
            left = max(0.0, seconds - _SETTLING_SECONDS)
            self._changes = self._cache.wait(self._changes, left)
            jobs = self._cache.jobs()
        if jobs is None:
            self.close()
            time.sleep(min(seconds, self._longest))
        else:
            self._sees_all = self._names <= _submitted(jobs)

    def close(self) -> None:
        if self._cache is not None:
            self._cache.leave()
            self._cache, self._sees_all = None, False


class Watch:
    """The objects of a list, by a thread that starts with the first use.

    The thread ends when the watch was not used for a long time. `trim` reduces each object to what
    is needed of it.
    """

    def __init__(
        self,
        api: KubernetesClient,
        path: str,
        trim: Callable[[Object], Object] = lambda item: item,
        /,
        **query: str,
    ) -> None:
        self._api, self._path, self._trim, self._query = api, path, trim, query
        self._lock = threading.Lock()
        self._loop: _WatchLoop | None = None
        self._process_id = os.getpid()

    def snapshot(self) -> Objects:
        """The objects as they are now, by uid.

        Raises the reason why they are not known now (`BackendUnreachableError`, `ApiError`): an
        older state is not shown as the present one.
        """
        return self._running().snapshot()

    @property
    def changes(self) -> int:
        """The number of changes, the first list included."""
        return self._running().changes

    def wait(self, changes: int, seconds: float) -> bool:
        """Wait until there are more changes than `changes`; False if there were none in time."""
        return self._running().wait(changes, seconds)

    def close(self) -> None:
        """End the thread. A later use starts another one."""
        with self._loop_lock():
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.end()

    def _running(self) -> _WatchLoop:
        with self._loop_lock():
            if self._loop is None or not self._loop.is_alive:
                self._loop = _WatchLoop(self._api, self._path, self._trim, self._query)
            return self._loop

    def _loop_lock(self) -> threading.Lock:
        # After a fork, the thread and its connection are the parent's, and the copy of the lock
        # may be locked.
        if self._process_id != os.getpid():
            self._lock, self._loop = threading.Lock(), None
            self._process_id = os.getpid()
        return self._lock


class _VersionForgottenError(Exception):
    """The server no longer has the version that we want to go on from."""


class _WatchLoop:
    """The thread of a watch, and the objects that it knows."""

    def __init__(
        self,
        api: KubernetesClient,
        path: str,
        trim: Callable[[Object], Object],
        query: Mapping[str, str],
    ) -> None:
        self._api, self._path, self._trim, self._query = api, path, trim, query
        self._used_at = time.monotonic()
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._stream: Stream | None = None
        self._objects: Objects = {}
        self._is_current = False
        self._problem: Exception | None = None
        self.changes = 0
        self._thread = threading.Thread(target=self._run, name="tao-kubernetes-watch", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ for callers

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def snapshot(self) -> Objects:
        with self._changed:
            self._used_at = time.monotonic()
            self._changed.wait_for(lambda: self._is_current or self._problem is not None)
            if self._problem is not None:
                raise self._problem.with_traceback(None)
            return dict(self._objects)

    def wait(self, changes: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.changes != changes, seconds)

    def end(self) -> None:
        with self._changed:
            self._ending.set()
            stream = self._stream
            self._problem = BackendUnreachableError(f"the watch of {self._path} was closed")
            self._notify()
        if stream is not None:
            stream.hang_up()
        self._thread.join(_CLOSING_SECONDS)  # no longer: it may be waiting for a list

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        version, failures = "", 0
        while not self._ending.is_set() and not self._is_unused():
            began = time.monotonic()
            try:
                version = self._follow(version or self._list())
                failures = 0 if time.monotonic() - began > _SHORT_WATCH_SECONDS else failures + 1
            except _VersionForgottenError:
                version, failures = "", failures + 1
            except TaoError as error:
                # A list shows what happened meanwhile, once the server answers again.
                version, failures = "", failures + 1
                self._note(error)
            except Exception as error:
                self._note(error)  # otherwise callers would wait for ever
                raise
            if failures:
                pause = min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2 ** min(failures - 1, 10))
                self._ending.wait(_uneven(pause))

    def _is_unused(self) -> bool:
        with self._changed:
            if time.monotonic() - self._used_at < _UNUSED_SECONDS:
                return False
            self._is_current, self._problem = False, BackendUnreachableError("used too seldom")
            return True

    def _list(self) -> str:
        found = self._api.list_all(self._path, **self._query)
        objects = {item["metadata"]["uid"]: self._trim(item) for item in found.items}
        with self._changed:
            # Shown once the watch has begun: until then changes are not noticed.
            self._objects, self._is_current = objects, False
        return found.resource_version

    def _follow(self, version: str) -> str:
        """Apply changes until the watch ends; the version reached."""
        with self._open(version) as stream:
            with self._changed:
                if self._ending.is_set():
                    return version
                self._stream = stream
                if not self._is_current:
                    self._is_current, self._problem = True, None
                    self._notify()
            for line in lines(_until_broken_off(stream)):
                try:
                    version = self._apply(json.loads(line)) or version
                except (ValueError, KeyError, TypeError, RecursionError):
                    raise BackendUnreachableError(
                        f"the watch of {self._path} on {self._api.access} sent something that is "
                        "not an event"
                    ) from None
        return version

    def _open(self, version: str) -> Stream:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        try:
            return self._api.stream(self._path, silence=WATCH_SECONDS + OVERDUE_SECONDS, **query)
        except ApiError as error:
            if error.expired:
                raise _VersionForgottenError from None
            raise

    def _apply(self, event: dict[str, Any]) -> str:
        """Apply one event; returns its version."""
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise self._error(item)
        metadata = item["metadata"]
        if kind != "BOOKMARK":
            with self._changed:
                if kind == "DELETED":
                    self._objects.pop(metadata["uid"], None)
                else:
                    self._objects[metadata["uid"]] = self._trim(item)
                self._notify()
        return str(metadata.get("resourceVersion") or "")

    def _error(self, status: dict[str, Any]) -> Exception:
        code = int(status.get("code") or 500)
        if code == 410:
            return _VersionForgottenError()
        return BackendUnreachableError(
            f"the watch of {self._path} on {self._api.access} failed: HTTP {code} "
            f"{status.get('message') or status.get('reason') or ''}"
        )

    def _note(self, error: Exception) -> None:
        with self._changed:
            if self._ending.is_set():
                return
            if self._problem is None:
                self._notify()
            self._problem, self._is_current = error, False

    def _notify(self) -> None:
        self.changes += 1
        self._changed.notify_all()


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines from pieces of any size. A last line without its end is left out."""
    begun: list[bytes] = []
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join((*begun, line))
            begun.clear()
        if rest:
            begun.append(rest)


def _until_broken_off(stream: Stream) -> Iterator[bytes]:
    """End at a broken connection: the next request shows whether the server is there."""
    try:
        yield from stream
    except BackendUnreachableError as error:
        _log.debug("%s", error)


def _uneven(seconds: float) -> float:
    """A random part of a delay, so that clients of a restarted server do not return together."""
    import random

    return seconds * random.uniform(0.5, 1)  # noqa: S311 - not for secrets


def _trimmed_job(job: Object) -> Object:
    """A Job without the template of its pods, which is most of its size."""
    spec = {key: value for key, value in job["spec"].items() if key != "template"}
    return _trimmed(job, spec)


def _trimmed_pod(pod: Object) -> Object:
    return _trimmed(pod, {"nodeName": pod["spec"].get("nodeName")})


def _trimmed(item: Object, spec: Object) -> Object:
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {"metadata": metadata, "spec": spec, "status": item.get("status")}


def _submitted(jobs: Iterable[Mapping[str, Any]]) -> set[str]:
    """The names of Jobs whose submission is complete."""
    return {job["metadata"]["name"] for job in jobs if not is_half_made(job)}
