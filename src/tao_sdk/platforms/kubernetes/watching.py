"""The objects of a list, kept up to date by the cluster itself.

One list, then a watch from its version on: the server tells of every change, and by bookmarks how
far the version has moved meanwhile. A server forgets old versions; then it is listed again.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tao_sdk.errors import BackendUnreachableError, TaoError
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient, Stream

# The server ends a watch after this time and a new one goes on: where it stays silent for longer,
# the connection is dead, and nobody told us.
WATCH_SECONDS = 60
OVERDUE_SECONDS = 15.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
# A watch that ends sooner than this counts as one that failed.
_SHORT_WATCH_SECONDS = 1.0
_CLOSING_SECONDS = 5.0
# Longer than anybody who waits pauses between two questions.
_FORGOTTEN_SECONDS = 900.0

_log = logging.getLogger("tao_sdk.kubernetes")

Objects = dict[str, dict[str, Any]]


class _ForgottenError(Exception):
    """The server no longer knows the version that we know."""


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines out of pieces of any size. A last one without its end is half of something."""
    begun: list[bytes] = []
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join((*begun, line))
            begun.clear()
        if rest:
            begun.append(rest)


def _until_broken_off(stream: Stream) -> Iterator[bytes]:
    """Whether the server can still be asked shows at the next attempt."""
    try:
        yield from stream
    except BackendUnreachableError as error:
        _log.debug("%s", error)


def _uneven(seconds: float) -> float:
    """So that not all clients of a server that was away come back at the same moment."""
    import random

    return seconds * random.uniform(0.5, 1)  # noqa: S311 - not for secrets


class Watch:
    """Lists once, then is told of changes, in a thread that begins with the first question.

    It ends when nobody has asked for a long time.
    """

    def __init__(self, api: KubernetesClient, path: str, /, **query: str) -> None:
        self._api, self._path, self._query = api, path, query
        self._beginning = threading.Lock()
        self._life: _Life | None = None
        _watches.add(self)

    def snapshot(self) -> Objects:
        """The objects as they are now, by uid.

        Raises what keeps the cluster from telling (`BackendUnreachableError`, `ApiError`): what was
        known earlier is not shown as if it were the present.
        """
        return self._living().snapshot()

    def wait(self, seconds: float) -> bool:
        """Let so much time pass, or less if something has changed since the last snapshot."""
        return self._living().wait(seconds)

    def close(self) -> None:
        """End the thread. A later question begins anew."""
        with self._beginning:
            life, self._life = self._life, None
        if life is not None:
            life.end()

    def _living(self) -> _Life:
        with self._beginning:
            if self._life is None or not self._life.is_alive:
                self._life = _Life(self._api, self._path, self._query)
            return self._life

    def _after_fork_in_child(self) -> None:
        # The thread and its connection are the parent's; locks may have been held by it.
        self._beginning = threading.Lock()
        self._life = None


_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for watch in _watches:
        watch._after_fork_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)


class _Life:
    """A watch from its beginning to its end, and what it knows."""

    def __init__(self, api: KubernetesClient, path: str, query: Mapping[str, str]) -> None:
        self._api, self._path, self._query = api, path, query
        self._asked_at = time.monotonic()
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._stream: Stream | None = None
        self._objects: Objects = {}
        self._is_current = False
        self._problem: Exception | None = None
        self._count = self._seen = 0
        self._thread = threading.Thread(target=self._run, name="tao-kubernetes-watch", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ for those who ask

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def snapshot(self) -> Objects:
        with self._changed:
            self._asked_at = time.monotonic()
            self._changed.wait_for(lambda: self._is_current or self._problem is not None)
            self._seen = self._count
            if self._problem is not None:
                raise self._problem.with_traceback(None)
            return dict(self._objects)

    def wait(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._count != self._seen, seconds)

    def end(self) -> None:
        with self._changed:
            self._ending.set()
            stream = self._stream
            self._problem = BackendUnreachableError(f"the watch of {self._path} was closed")
            self._tell()
        if stream is not None:
            stream.hang_up()
        self._thread.join(_CLOSING_SECONDS)  # no longer: it may be waiting for a list

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        version, failures = "", 0
        while not self._ending.is_set() and not self._is_forgotten():
            began = time.monotonic()
            try:
                version = self._follow(version or self._list())
                failures = 0 if time.monotonic() - began > _SHORT_WATCH_SECONDS else failures + 1
            except _ForgottenError:
                version, failures = "", failures + 1
            except TaoError as error:
                # What happened meanwhile is learnt by listing, once the server can be asked.
                version, failures = "", failures + 1
                self._note(error)
            except Exception as error:
                self._note(error)  # or whoever asks would wait for ever
                raise
            if failures:
                pause = min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2 ** min(failures - 1, 10))
                self._ending.wait(_uneven(pause))

    def _is_forgotten(self) -> bool:
        """Does nobody want to know any more? Then what is known is not kept up to date."""
        with self._changed:
            if time.monotonic() - self._asked_at < _FORGOTTEN_SECONDS:
                return False
            self._is_current, self._problem = False, BackendUnreachableError("asked too seldom")
            return True

    def _list(self) -> str:
        found = self._api.list_all(self._path, **self._query)
        objects = {item["metadata"]["uid"]: item for item in found.items}
        with self._changed:
            # Shown once the watch stands: until then nobody would tell of changes.
            self._objects, self._is_current = objects, False
        return found.resource_version

    def _follow(self, version: str) -> str:
        """Take in changes until the watch ends; the version reached."""
        with self._open(version) as stream:
            with self._changed:
                if self._ending.is_set():
                    return version
                self._stream = stream
                if not self._is_current:
                    self._is_current, self._problem = True, None
                    self._tell()
            for line in lines(_until_broken_off(stream)):
                try:
                    version = self._take_in(json.loads(line)) or version
                except (ValueError, KeyError, TypeError):
                    raise BackendUnreachableError(
                        f"the watch of {self._path} on {self._api.access} told of what is no event"
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
                raise _ForgottenError from None
            raise

    def _take_in(self, event: dict[str, Any]) -> str:
        """One event; the version that it brings."""
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise self._error(item)
        metadata = item["metadata"]
        if kind != "BOOKMARK":
            with self._changed:
                if kind == "DELETED":
                    self._objects.pop(metadata["uid"], None)
                else:
                    self._objects[metadata["uid"]] = item
                self._tell()
        return str(metadata.get("resourceVersion") or "")

    def _error(self, status: dict[str, Any]) -> Exception:
        code = int(status.get("code") or 500)
        if code == 410:
            return _ForgottenError()
        return BackendUnreachableError(
            f"the watch of {self._path} on {self._api.access} failed: HTTP {code} "
            f"{status.get('message') or status.get('reason') or ''}"
        )

    def _note(self, error: Exception) -> None:
        with self._changed:
            if self._ending.is_set():
                return
            if self._problem is None:
                self._tell()
            self._problem, self._is_current = error, False

    def _tell(self) -> None:
        self._count += 1
        self._changed.notify_all()
