"""What killed clients left half made, when no job store knows of it any more.

Whoever has the store settles it. A store may be lost, though, and a Job with a job's credentials
beside it would stay for ever: it never ran, so it never ends. A submission takes seconds; one that
is an hour old, whatever the clocks say, is nobody's.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone

from tao_sdk.platforms.common.times import parse_time
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.submit import Submitter

_log = logging.getLogger("tao_sdk.kubernetes")
ABANDONED = timedelta(hours=1)


def sweep(api: KubernetesClient, namespace: str, abandoned: timedelta = ABANDONED) -> None:
    """Remove what nobody can want any more."""
    listed = api.list_all(naming.jobs_path(namespace), labelSelector=naming.LABEL_SUBMITTING)
    now = datetime.now(timezone.utc)
    for job in listed.items:
        name = job["metadata"]["name"]
        if now - parse_time(job["metadata"]["creationTimestamp"]) < abandoned:
            continue
        try:
            # As it was seen: if its client lives after all and is done, it stays.
            if Submitter(api).take_back({**job, "kind": "Job"}, version=True):
                _log.info("removed Job %s, which a client that is gone left half made", name)
        except ApiError as error:
            # Somebody else's rubbish must not keep this client from its work.
            _log.warning("Job %s, left half made, cannot be removed: %s", name, error)
