"""The kinds of native objects that a job can be: pure.

A job is a Job, or a JobSet or a TrainJob, whose controllers create a Job from it. The object that
the SDK creates first and that owns the rest is the root. `as_job` translates a root and its Job
into one Job, so that states, logs and evidence need to know Jobs alone. `volcano` is a plain Job
that another scheduler places.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tao_sdk.platforms.kubernetes import naming

Object = Mapping[str, Any]
REPLICATED_JOB = "node"
"""The name of the one Job template in a JobSet."""
_TTL = "ttlSecondsAfterFinished"


class Kind(NamedTuple):
    """A kind of object, as the API names it."""

    api_version: str
    kind: str
    resource: str
    website: str = ""

    def path(self, namespace: str, name: str = "") -> str:
        below = f"namespaces/{namespace}/{self.resource}"
        return f"/apis/{self.api_version}/{below}{f'/{name}' if name else ''}"


class Restarts(NamedTuple):
    """How often the pods of a JobSet are restarted together."""

    limit: int
    program_failures: bool
    """Also after a failure of the program, not only of a node."""


JOB = Kind("batch/v1", "Job", "jobs")
JOBSET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", "https://jobset.sigs.k8s.io")
TRAINJOB = Kind(
    "trainer.kubeflow.org/v1alpha1",
    "TrainJob",
    "trainjobs",
    "https://www.kubeflow.org/docs/components/trainer",
)
TRAINING_RUNTIME = TRAINJOB._replace(kind="TrainingRuntime", resource="trainingruntimes")
POD_GROUP = Kind(
    "scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups", "https://volcano.sh/docs/installation"
)

ROOTS = {"job": JOB, "jobset": JOBSET, "trainjob": TRAINJOB, "volcano": JOB}
"""The root for each value of `kind=`."""
NEEDED = {
    "jobset": (JOBSET,),
    "trainjob": (TRAINJOB, TRAINING_RUNTIME),
    "volcano": (POD_GROUP,),
}
"""The kinds of objects that the cluster must serve for it."""
_BY_NAME = {each.kind: each for each in (JOB, JOBSET, TRAINJOB, TRAINING_RUNTIME, POD_GROUP)}


def root_of(native: Object) -> Kind:
    """The kind of a job's root, from what the store knows of the job."""
    return ROOTS[native.get("kind", "job")]


def named(native: Object, job_id: str) -> dict[str, Any]:
    """A job's root with its kind, namespace and name only."""
    metadata = {"namespace": native["namespace"], "name": naming.job_name(job_id)}
    return {"kind": root_of(native).kind, "metadata": metadata}


def path_of(thing: Object) -> str:
    """The path of an object in the API."""
    metadata = thing["metadata"]
    return _BY_NAME[thing["kind"]].path(metadata["namespace"], metadata["name"])


def as_job(root: Object, jobs: Iterable[Object]) -> dict[str, Any]:
    """The Job that a root stands for.

    Its end is the root's; everything else comes from the Job that the root's controller created.
    The Job of a suspended root does not count.
    """
    suspended = bool(root["spec"].get("suspend"))
    job = None if suspended else _job_of(root, jobs)
    found = (job or {}).get("status") or {}
    of_root = {each["type"]: each for each in (root.get("status") or {}).get("conditions") or ()}
    of_job = {each["type"]: each for each in found.get("conditions") or ()}
    conditions = []
    for name, meaning in (
        ("Complete", "Complete"),
        ("Completed", "Complete"),
        ("Failed", "Failed"),
    ):
        if of_root.get(name, {}).get("status") == "True":
            # The Job's own reason says more than "a Job failed".
            conditions.append({**of_root[name], **of_job.get(meaning, {}), "type": meaning})
    metadata = root["metadata"]
    if job is not None:
        # Events about pods that cannot be created are about the Job.
        metadata = {**metadata, "uid": job["metadata"]["uid"]}
    nodes = _node_count(root)
    return {
        "metadata": metadata,
        "spec": {"suspend": suspended, "completions": nodes, "parallelism": nodes},
        "status": {**found, "conditions": conditions},
    }


def child_of(name: str) -> str:
    """The name of the Job that the controller of a JobSet or TrainJob creates."""
    return f"{name}-{REPLICATED_JOB}-0"


def _job_of(root: Object, jobs: Iterable[Object]) -> Object | None:
    name = child_of(root["metadata"]["name"])
    return next(
        (
            job
            for job in jobs
            if job["metadata"]["name"] == name and "deletionTimestamp" not in job["metadata"]
        ),
        None,
    )


def _node_count(root: Object) -> int:
    spec = root["spec"]
    if "trainer" in spec:
        return int(spec["trainer"]["numNodes"])
    return int(spec["replicatedJobs"][0]["template"]["spec"]["completions"])


def job_set(job: Object, restarts: Restarts) -> dict[str, Any]:
    """A JobSet that runs a Job."""
    spec = _job_set_spec(job, restarts)
    if _TTL in job["spec"]:
        spec[_TTL] = job["spec"][_TTL]
    return _of_kind(JOBSET, job, spec)


def train_job(job: Object, restarts: Restarts, nodes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A TrainJob that runs a Job, and the runtime that it refers to, which describes the pods."""
    spec = _job_set_spec(job, restarts)
    # Not labelled as Trainer's own step: Trainer would refuse a container with another name than
    # "node", and would overwrite its environment.
    described = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": spec}}
    runtime = _of_kind(TRAINING_RUNTIME, job, described)
    runtime["metadata"]["labels"][naming.LABEL_SUBMITTING] = "true"
    reference = {
        "apiGroup": TRAINJOB.api_version.partition("/")[0],
        "kind": TRAINING_RUNTIME.kind,
        "name": job["metadata"]["name"],
    }
    root = _of_kind(TRAINJOB, job, {"runtimeRef": reference, "trainer": {"numNodes": nodes}})
    if (ttl := job["spec"].get(_TTL)) is not None:
        # Kubernetes keeps ended TrainJobs for ever: the SDK removes them, see cleanup.py.
        root["metadata"]["annotations"][naming.TTL_ANNOTATION] = str(ttl)
    return root, runtime


def _of_kind(kind: Kind, job: Object, spec: dict[str, Any]) -> dict[str, Any]:
    """An object of another kind with the metadata of a Job."""
    metadata = copy.deepcopy(job["metadata"])
    metadata.setdefault("annotations", {})
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _job_set_spec(job: Object, restarts: Restarts) -> dict[str, Any]:
    """The spec of a JobSet that runs one Job; all its pods restart together."""
    spec = {
        **{key: value for key, value in job["spec"].items() if key != _TTL},
        "backoffLimit": 0,
        "completionMode": "Indexed",
    }
    spec.setdefault("completions", 1)
    spec.setdefault("parallelism", 1)
    metadata = job["metadata"]
    passed_on = {
        "labels": {
            name: value for name, value in metadata["labels"].items() if name != naming.LABEL_TOKEN
        },
        "annotations": metadata.get("annotations", {}),
    }
    made: dict[str, Any] = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [
            {
                "name": REPLICATED_JOB,
                "replicas": 1,
                "template": {"metadata": passed_on, "spec": spec},
            }
        ],
    }
    if restarts.limit:
        made["failurePolicy"] = {"maxRestarts": restarts.limit}
        if not restarts.program_failures:
            final = {"name": "program", "action": "FailJobSet"}
            rule = {**final, "onJobFailureReasons": ["PodFailurePolicy"]}
            made["failurePolicy"]["rules"] = [rule]
    return made
