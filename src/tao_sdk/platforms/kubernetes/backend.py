"""The Kubernetes platform: jobs as Jobs of one cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import (
    BackendUnreachableError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.failures import Evidence
from tao_sdk.job_states import utc_now
from tao_sdk.platforms import volume_programs
from tao_sdk.platforms.backend import (
    Backend,
    JobIdentity,
    JobRef,
    LogSource,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.capabilities import PollBackoff
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.common.times import parse_time
from tao_sdk.platforms.evidence import RawEvidence, ask_each
from tao_sdk.platforms.kubernetes import kinds, manifests, naming, plan, volume_probe, volumes
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.capacity import total_gpus
from tao_sdk.platforms.kubernetes.cleanup import Cleanup
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.cluster import Cluster
from tao_sdk.platforms.kubernetes.evidence import EvidenceCollector
from tao_sdk.platforms.kubernetes.logs import JobLogs, RankLog
from tao_sdk.platforms.kubernetes.observe import GONE, Observer, list_pods
from tao_sdk.platforms.kubernetes.pods import STUCK, in_order, node_of, phase_of
from tao_sdk.platforms.kubernetes.records import Records
from tao_sdk.platforms.kubernetes.status import (
    has_ended,
    is_another,
    replica_of,
    replica_to_come,
    waiting_for,
)
from tao_sdk.platforms.kubernetes.submit import Submitter
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import results_in_bucket, runner_settings, stop_seconds
from tao_sdk.result_record import ResultRecord

if TYPE_CHECKING:
    from tao_sdk.platforms.kubernetes.volume_reader import VolumeReader
    from tao_sdk.results import ResultSource

_log = logging.getLogger("tao_sdk.kubernetes")
# By how much clocks may differ.
_SKEW = timedelta(minutes=5)


class KubernetesBackend(Backend):
    """Runs jobs as Jobs."""

    platform = "kubernetes"
    poll_seconds = 1.0
    submit_parallelism = 8
    transport: KubernetesClient

    def __init__(self, access: ClusterAccess, kept: Path) -> None:
        self.transport = KubernetesClient(access)
        self.cluster = Cluster(self.transport)
        self._kept = JobFiles(kept)
        self._checks = plan.ClusterChecks(self.transport, self.cluster)
        self._submitter = Submitter(self.transport)
        self._observer = Observer(self.transport, self.cluster)
        self._cleanup = Cleanup(self.transport, self._kept)
        self._collector = EvidenceCollector(self.transport)
        self._probe = volume_probe.VolumeProbe(self.transport)
        self._records = Records(self._probe, self._nodes_of)
        self._readers: list[VolumeReader] = []

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        plan.refuse_impossible(request)
        namespace = plan.namespace_of(request, self.transport.access.namespace)
        warnings = self._checks.check(request, namespace)
        gpus, about_gpus = self._checks.gpus(request)
        credentials = job_credentials(request.env)
        resolved = manifests.ResolvedJob(
            job_id=identity.job_id,
            token=identity.token,
            namespace=namespace,
            gpu_count=gpus,
            credentials=credentials,
            runner=runner_settings(request),
            stop_seconds=stop_seconds(runner=request.payload is not None),
            login=plan.login(request),
        )
        objects = manifests.build(request, resolved)
        place = volumes.results_place(request.options.mounts)
        results_dir = plan.results_address(place, namespace, identity.job_id)
        if place is None:
            env = {
                **manifests.secret_environment(request, resolved),
                **manifests.plain_environment(request, resolved),
            }
            results_dir = results_in_bucket(request, env, identity.job_id)
        ttl = objects.job["spec"].get("ttlSecondsAfterFinished")
        return Plan(
            identity=identity,
            platform=self.platform,
            request=request,
            artefacts=lambda: plan.artefacts(
                objects, self.transport, namespace, request.shell_command
            ),
            intent={
                "server": self.transport.access.server,
                "context": self.transport.access.context,
                "cluster": self.cluster.identity(),
                "namespace": namespace,
                "kind": request.options.kind,
                "nodes": request.num_nodes,
                "results": str(place) if place else "",
                "pod": volume_probe.template_of(objects.job["spec"]["template"]["spec"]),
                "secret_names": sorted({*request.env, *credentials}),
                "env_secrets": plan.named_secrets(request.options),
                "planned_at": utc_now(),
                "ttl": ttl,
            },
            results_dir=results_dir,
            warnings=plan.notes([*warnings, *about_gpus], results_dir, ttl),
            payload=objects,
        )

    def submit(self, plan: Plan) -> Submission:
        with self._asking():
            made = self._submitter.make(plan.payload)
        return self._submission(plan.identity.name, plan.intent, made, "submitted")

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        with self._asking():
            return {job.job_id: self._settle(job) for job in jobs}

    def _settle(self, job: JobRef) -> Submission | None:
        root = kinds.named(job.native, job.job_id)
        found = self._submitter.settle(root, job.identity.token)
        if found is not None:
            return self._submission(job.identity.name, job.native, found, "adopted")
        if _would_be_there(job.native):
            return None
        # It may have run, ended, and been removed since: whether it did, its record says.
        return Submission(job.identity.name, job.native, "its Job is not there (any more)")

    def _submission(
        self, name: str, intent: Mapping[str, Any], job: Mapping[str, Any], message: str
    ) -> Submission:
        # The uid of another root says nothing about the Job and the pods that it has.
        native = {**intent, "uid": job["metadata"]["uid"]} if job["kind"] == "Job" else intent
        return Submission(name, native, message)

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        with self._asking():
            seen = self._observer.observe(jobs)
        self._records.will_be_asked(job for job in jobs if seen[job.job_id] == GONE)
        return seen

    def elsewhere(self, jobs: Sequence[JobRef]) -> Mapping[str, str]:
        with self._asking():
            return self.cluster.elsewhere(jobs)

    def backoff(self, job_ids: Sequence[str]) -> PollBackoff:
        return self._observer.backoff(job_ids, self.poll_seconds)

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        return self._cleanup.advance(jobs)

    def cancel(self, job: JobRef) -> None:
        with self._asking():
            found = self._submitter.find(kinds.named(job.native, job.job_id))
            if found is None or is_another(found, job.native):
                return
            if not (has_ended(found) or found["metadata"].get("deletionTimestamp")):
                self._follow_logs(job)
                self._submitter.stop(found)

    def _follow_logs(self, job: JobRef) -> None:
        try:
            pods = list_pods(self.transport, job)
        except ApiError as error:
            if not error.forbidden:
                raise
            _log.warning("the log of job %s is not saved: %s", job.job_id, error)
        else:
            self._cleanup.follow(job, pods)

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        logs = JobLogs(self.transport, self._kept, job)
        return [RankLog(logs, rank) for rank in range(int(job.native["nodes"]))]

    def close(self) -> None:
        """Let go of connections to the cluster."""
        for reader in self._readers:
            reader.close()
        self._observer.close()
        self.transport.close()

    # ------------------------------------------------------------------ explaining

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        return ask_each(jobs, self._evidence)

    def _evidence(self, job: JobRef) -> RawEvidence:
        with self._asking():
            return self._collector.evidence(job)

    def stuck(self, job: JobRef) -> Evidence | None:
        """Why a job that waits will wait for ever, unless somebody does something about it."""
        namespace = job.native["namespace"]
        with self._asking():
            seen = self._observer.snapshot(namespace, [job])
        found = seen.jobs.get(job.job_id)
        if found is None or has_ended(found) or is_another(found, job.native):
            return None
        for _, issue in waiting_for(found, seen.pods_of(found) or (), seen.events):
            if issue.reason in STUCK:
                return Evidence(reason=f"{issue.reason}: {issue.message}", never_started=True)
        return None

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        with self._asking():
            seen = self._observer.snapshot(job.native["namespace"], [job])
            pods = list_pods(self.transport, job)
        if pods:
            return [replica_of(pod, seen.events) for pod in in_order(pods)]
        found = seen.jobs.get(job.job_id)
        if found is None or has_ended(found) or is_another(found, job.native):
            return []
        return [replica_to_come(found, seen.events)]

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        if not job.native["results"]:
            return []
        with self._asking():
            return self._records.of(job)

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        if not job.native["results"]:
            return {}
        found: dict[str, int] = {}
        for told in self._look_at_results(job, volume_programs.FILES):
            found |= volume_programs.parse_files(told)
        return found

    def result_source(self, job: JobRef) -> ResultSource | None:
        from tao_sdk.platforms.kubernetes.results import VolumeResults
        from tao_sdk.platforms.kubernetes.volume_reader import VolumeReader

        if not job.native["results"]:
            return None
        place = volumes.parse_place("results", job.native["results"]).below(job.job_id)
        namespace, template = job.native["namespace"], job.native["pod"]
        with self._asking():
            node = self._node_of_results(job)
        reader = VolumeReader(self.transport, namespace, place, template, node)
        self._readers.append(reader)
        return VolumeResults(reader, job)

    # ------------------------------------------------------------------ paths

    def delete_artifacts(self, job: JobRef) -> bool:
        with self._asking():
            if job.native["results"] and not all(
                map(self._is_removed(job), self._look_at_results(job, volume_probe.REMOVE))
            ):
                return False
            found = self._submitter.find(kinds.named(job.native, job.job_id))
            if found is not None and not is_another(found, job.native):
                self._submitter.take_back(found, version=False)
        self._kept.remove(job.job_id)
        return True

    def check_path(self, path: str) -> bool:
        return "yes" in self._look_at(path, volume_programs.EXISTS).split()

    def list_path(self, path: str) -> list[str]:
        return sorted(filter(None, self._look_at(path, volume_programs.LIST).splitlines()))

    def total_gpus(self) -> int:
        """All GPUs that the cluster's nodes offer."""
        nodes = self.cluster.nodes()
        if nodes is None:
            raise BackendUnreachableError(
                "nodes cannot be listed by you, so it is not known how many GPUs there are"
            )
        return total_gpus(nodes)

    # ------------------------------------------------------------------ inner workings

    def _look_at(self, path: str, program: str) -> str:
        """Ask about an address of a volume."""
        text = path.removeprefix("pvc://")
        namespace, at, rest = text.partition("@")
        if not path.startswith("pvc://") or not at:
            namespace = plan.default_namespace(self.transport.access.namespace)
        else:
            path = f"pvc://{rest}"
        if "://" not in path:
            raise ValidationError(
                f"{path}: a path means nothing without what is mounted there: give "
                "pvc://claim/folder, nfs://server/export or hostpath:///folder"
            )
        place = volumes.parse_place("path", path)
        with self._asking():
            template = self._probe.template_in(namespace)
            return self._probe.run(namespace, place, program, template)

    def _look_at_results(self, job: JobRef, program: str) -> list[str]:
        """What is said about them; by each node, where they are on several."""
        place = volumes.parse_place("results", job.native["results"]).below(job.job_id)
        where = job.native["namespace"], place, program, job.native["pod"]
        with self._asking():
            nodes = self._nodes_of(job) or [""]
            return [self._probe.run(*where, node=node) for node in nodes]

    def _node_of_results(self, job: JobRef) -> str:
        """The node that must read its results; "" for any."""
        if volume_probe.is_on_nodes(job):
            nodes = self._nodes_of(job)
            if len(nodes) > 1:
                raise UnsupportedError(
                    f"the results are in folders of {len(nodes)} nodes ({', '.join(nodes)}): pull "
                    "reads one folder; give jobs on several nodes a volume that they share"
                )
            return "".join(nodes)
        # Some volumes can be attached to one node only: the one that the job uses now.
        running = [pod for pod in list_pods(self.transport, job) if phase_of(pod) == "Running"]
        return node_of(running[0]) if running else ""

    def _is_removed(self, job: JobRef) -> Callable[[str], bool]:
        """Do these words mean that the results are gone? Not if they may be on another node."""
        anywhere = not volume_probe.is_on_nodes(job) or bool(self._nodes_of(job))
        return lambda said: "removed" in said and (anywhere or "absent" not in said)

    def _nodes_of(self, job: JobRef) -> list[str]:
        """The nodes that have its results in a folder of theirs, as far as that is known."""
        if not volume_probe.is_on_nodes(job):
            return []
        path = self._kept.path(job.job_id, naming.NODES_FILE)
        known = path.read_text(encoding="utf-8").split() if path.exists() else []
        return known or sorted({node_of(pod) for pod in list_pods(self.transport, job)} - {""})

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A cluster that refuses to say was not asked."""
        try:
            yield
        except ApiError as error:
            raise BackendUnreachableError(
                f"the cluster at {self.transport.access.server} refuses {error.call} "
                f"({error.status} {error.reason}): {error.message}"
            ) from error


def _would_be_there(native: Mapping[str, Any]) -> bool:
    """Would a Job that had been made still be there, however soon it had ended?"""
    if native["ttl"] is None:
        return True
    kept_until = parse_time(native["planned_at"]) + timedelta(seconds=int(native["ttl"]))
    return datetime.now(timezone.utc) + _SKEW < kept_until
