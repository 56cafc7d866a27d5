"""The Kubernetes platform: jobs as Jobs of one cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import BackendUnreachableError
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
from tao_sdk.platforms.kubernetes import kinds, manifests, plan, volume_probe, volumes
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.capacity import total_gpus
from tao_sdk.platforms.kubernetes.cleanup import Cleanup
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.cluster import Cluster
from tao_sdk.platforms.kubernetes.evidence import EvidenceCollector
from tao_sdk.platforms.kubernetes.logs import JobLogs, RankLog
from tao_sdk.platforms.kubernetes.observe import GONE, Observer, list_pods
from tao_sdk.platforms.kubernetes.pods import STUCK, in_order
from tao_sdk.platforms.kubernetes.results import JobResults
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
    from tao_sdk.results import ResultSource

_log = logging.getLogger("tao_sdk.kubernetes")
# Clocks of client and cluster may differ by this much.
_SKEW = timedelta(minutes=5)


class KubernetesBackend(Backend):
    """Runs jobs as Jobs of one cluster."""

    platform = "kubernetes"
    poll_seconds = 1.0
    submit_parallelism = 8
    transport: KubernetesClient

    def __init__(self, access: ClusterAccess, folder: Path) -> None:
        self.transport = KubernetesClient(access)
        self.cluster = Cluster(self.transport)
        self._files = JobFiles(folder)
        self._checks = plan.ClusterChecks(self.transport, self.cluster)
        self._submitter = Submitter(self.transport)
        self._observer = Observer(self.transport, self.cluster)
        self._cleanup = Cleanup(self.transport, self._files)
        self._collector = EvidenceCollector(self.transport)
        self._probe = volume_probe.VolumeProbe(self.transport)
        self._results = JobResults(self.transport, self._probe, self._files)

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
        # It may have run, ended and been removed since. If it did, its record says so.
        return Submission(job.identity.name, job.native, "its Job does not exist (any more)")

    def _submission(
        self, name: str, intent: Mapping[str, Any], job: Mapping[str, Any], message: str
    ) -> Submission:
        # The Job of another root has a uid of its own.
        native = {**intent, "uid": job["metadata"]["uid"]} if job["kind"] == "Job" else intent
        return Submission(name, native, message)

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        with self._asking():
            seen = self._observer.observe(jobs)
        self._results.note_vanished(job for job in jobs if seen[job.job_id] == GONE)
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
        logs = JobLogs(self.transport, self._files, job)
        return [RankLog(logs, rank) for rank in range(int(job.native["nodes"]))]

    def close(self) -> None:
        """Close connections to the cluster."""
        self._results.close()
        self._observer.close()
        self.transport.close()

    # ------------------------------------------------------------------ explaining

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        return ask_each(jobs, self._evidence)

    def _evidence(self, job: JobRef) -> RawEvidence:
        with self._asking():
            return self._collector.evidence(job)

    def stuck(self, job: JobRef) -> Evidence | None:
        """Why a pending job will never start unless the user removes the cause."""
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

    # ------------------------------------------------------------------ results, paths

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        with self._asking():
            return self._results.records(job)

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        with self._asking():
            return self._results.sizes(job)

    def result_source(self, job: JobRef) -> ResultSource | None:
        with self._asking():
            return self._results.source(job)

    def delete_artifacts(self, job: JobRef) -> bool:
        with self._asking():
            if not self._results.remove(job):
                return False
            found = self._submitter.find(kinds.named(job.native, job.job_id))
            if found is not None and not is_another(found, job.native):
                self._submitter.take_back(found, version=False)
        self._files.remove(job.job_id)
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
                "you may not list nodes, so the number of their GPUs is unknown"
            )
        return total_gpus(nodes)

    def _look_at(self, path: str, program: str) -> str:
        namespace = plan.default_namespace(self.transport.access.namespace)
        with self._asking():
            return self._probe.run_at(path, namespace, program)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn refusals of the cluster into `BackendUnreachableError`."""
        try:
            yield
        except ApiError as error:
            raise BackendUnreachableError(
                f"the cluster at {self.transport.access.server} refuses {error.call} "
                f"({error.status} {error.reason}): {error.message}"
            ) from error


def _would_be_there(native: Mapping[str, Any]) -> bool:
    """Whether a created Job would still exist, even if it had ended at once."""
    if native["ttl"] is None:
        return True
    kept_until = parse_time(native["planned_at"]) + timedelta(seconds=int(native["ttl"]))
    return datetime.now(timezone.utc) + _SKEW < kept_until
