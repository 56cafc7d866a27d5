"""Waiting until the cluster tells of a change, instead of asking it again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.capabilities import PollBackoff
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.states import is_half_made
from tao_sdk.platforms.kubernetes.watching import Watch

# A job that is not there is missing for good only after a while: that takes looks.
_RARELY_SECONDS = 10.0
# As long as all jobs are there and nothing is told of them, none has ended. A look all the same:
# somebody may have died between making a Job and writing that down.
_TOLD_SECONDS = 300.0
# How seldom we look when many jobs change one after the other.
_SETTLING_SECONDS = 0.1


class WatchPauses(PollBackoff):
    """Pauses that end when a Job of ours changes. Without a watch, ordinary ones."""

    def __init__(
        self,
        api: KubernetesClient,
        job_ids: Collection[str],
        namespaces: Callable[[], Collection[str]],
        longest: float,
    ) -> None:
        super().__init__(longest)
        self._api = api
        self._selector = naming.selector_of(job_ids)
        self._names = frozenset(map(naming.job_name, job_ids))
        self._namespaces = namespaces
        self._watch: Watch | None = None
        self._sees_all = False

    @property
    def longest(self) -> float:
        if self._watch is None:
            return self._longest
        return _TOLD_SECONDS if self._sees_all else _RARELY_SECONDS

    def after(self, delay: float) -> float:
        return self.longest if self._sees_all else super().after(delay)

    def pause(self, seconds: float) -> None:
        watch = self._listening()
        if watch is None:
            time.sleep(seconds)
            return
        time.sleep(min(seconds, _SETTLING_SECONDS))
        try:
            watch.wait(max(0.0, seconds - _SETTLING_SECONDS))
            self._sees_all = self._names <= _submitted(watch.snapshot().values())
        except (BackendUnreachableError, ApiError):
            self.close()
            time.sleep(min(seconds, self._longest))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch, self._sees_all = None, False

    def _listening(self) -> Watch | None:
        """Where all jobs are in one namespace, a watch of it."""
        if self._watch is None:
            namespaces = list(self._namespaces())
            if len(namespaces) == 1:
                path = naming.jobs_path(namespaces[0])
                self._watch = Watch(self._api, path, labelSelector=self._selector)
        return self._watch


def _submitted(jobs: Iterable[Mapping[str, Any]]) -> set[str]:
    """The names of Jobs that nobody is still busy with submitting."""
    return {job["metadata"]["name"] for job in jobs if not is_half_made(job)}
