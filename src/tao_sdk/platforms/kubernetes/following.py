"""The Jobs and pods of a namespace, for somebody who asks again and again.

The first time they are listed. Who asks once more soon after will ask again: from then on they are
watched, and asking costs no request. The two watches know nothing of each other, so one may be a
moment ahead. Who needs both therefore checks that they fit, and asks the cluster where they do not.
"""

from __future__ import annotations

import time
from typing import Any

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.watching import Watch

# Neither running nor well: pods that have something to tell.
TELLING = "status.phase!=Running,status.phase!=Succeeded"
# Who comes back within this time asks often.
_SOON_SECONDS = 120.0
# Who may not watch does not try again all the time.
_REFUSED_SECONDS = 60.0

Items = list[dict[str, Any]]


class Following:
    """What one namespace has of ours."""

    def __init__(self, api: KubernetesClient, namespace: str) -> None:
        self._asked_at: float | None = None
        self._jobs = Watch(api, naming.jobs_path(namespace), labelSelector=naming.ALL)
        self._pods = Watch(
            api,
            naming.core_path(namespace, "pods"),
            labelSelector=naming.ALL,
            fieldSelector=TELLING,
        )
        self._refused_at: float | None = None

    def jobs(self) -> Items | None:
        """All Jobs of ours; None where the cluster is to be asked."""
        now = time.monotonic()
        before, self._asked_at = self._asked_at, now
        if before is None or now - before > _SOON_SECONDS:
            return None
        return self._told(self._jobs)

    def pods(self) -> Items | None:
        """Their pods that have something to tell; None where the cluster is to be asked."""
        return self._told(self._pods)

    def close(self) -> None:
        self._jobs.close()
        self._pods.close()

    def _told(self, watch: Watch) -> Items | None:
        refused = self._refused_at
        if refused is not None and time.monotonic() - refused < _REFUSED_SECONDS:
            return None
        try:
            return list(watch.snapshot().values())
        except ApiError:
            # Who may list may not always watch; a server that has just started lets nobody in.
            self._refused_at = time.monotonic()
            self.close()
        except BackendUnreachableError:
            pass  # it goes on trying; until then the answer to a question says it
        return None
