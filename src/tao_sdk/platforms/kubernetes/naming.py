"""Names and labels of our objects in a cluster, and paths of its API. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

LABEL = "tao-toolkit"
LABEL_JOB = "tao-sdk-job-id"
LABEL_NETWORK = "tao-sdk-network"
LABEL_ACTION = "tao-sdk-action"
LABEL_TOKEN = "tao-sdk-token"  # noqa: S105 - a name; the token tells submissions apart
LABEL_FENCE = "tao-sdk-fence"
LABEL_HELPER = "tao-sdk-helper"
# On a root until its submission is complete.
LABEL_SUBMITTING = "tao-sdk-submitting"
OUR_LABELS = frozenset(
    {
        LABEL,
        LABEL_JOB,
        LABEL_NETWORK,
        LABEL_ACTION,
        LABEL_TOKEN,
        LABEL_FENCE,
        LABEL_HELPER,
        LABEL_SUBMITTING,
    }
)

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_NAME_LABEL = "job-name"
CONTROLLER_LABEL = "controller-uid"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
RESTARTS_ANNOTATION = "jobset.sigs.k8s.io/restart-attempt"
POD_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
TTL_ANNOTATION = "tao-sdk-ttl-seconds"
"""How long a TrainJob is kept after its end; Kubernetes has no field for it."""

CONTAINER = "tao"
GPU = "nvidia.com/gpu"

LOG_SUFFIX = ".log"
"""Ends the name of a saved log, which begins with the name of the pod."""
NODES_FILE = "nodes"
"""The file with the nodes that the pods of a job ran on."""

_NOT_IN_A_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_LABEL = 63
ALL = f"{LABEL}=true"
"""Selects all our jobs and their pods."""
# More jobs than this are not selected by their ids.
_FEW = 20


def job_name(job_id: str) -> str:
    return f"tao-job-{job_id}".lower()


def label_value(text: str) -> str:
    """The nearest text that can be the value of a label. The store has the original."""
    return _NOT_IN_A_LABEL.sub("_", text)[:_LONGEST_LABEL].strip("_.-")


def selector_of(job_ids: Collection[str]) -> str:
    """Select these jobs; if they are many, all our jobs."""
    if len(job_ids) <= _FEW:
        return f"{LABEL_JOB} in ({','.join(sorted(job_ids))})"
    return ALL


def pods_selector(job_id: str, uid: str) -> str:
    """Select the pods of a job; with the uid of a Job, only those of that Job."""
    selector = f"{LABEL_JOB}={job_id}"
    return f"{selector},{CONTROLLER_LABEL}={uid}" if uid else selector


def core_path(namespace: str, resource: str, name: str = "") -> str:
    """The path of pods, Secrets, Services, ConfigMaps, Events or claims of a namespace."""
    return _below(f"/api/v1/namespaces/{namespace}/{resource}", name)


def jobs_path(namespace: str, name: str = "") -> str:
    return _below(f"/apis/batch/v1/namespaces/{namespace}/jobs", name)


def _below(path: str, name: str) -> str:
    return f"{path}/{name}" if name else path
