"""The Lepton platform: jobs of one workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError
from tao_sdk.failures import Evidence
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
from tao_sdk.platforms.common.job_files import CANCELED, JobFiles
from tao_sdk.platforms.evidence import RawEvidence, ask_each
from tao_sdk.platforms.lepton import job_spec, naming, volume_probe
from tao_sdk.platforms.lepton import plan as planning
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.lepton.cleanup import Cleanup
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.evidence import EvidenceCollector
from tao_sdk.platforms.lepton.logs import JobLogs
from tao_sdk.platforms.lepton.observe import Observer
from tao_sdk.platforms.lepton.results import VolumeResults
from tao_sdk.platforms.lepton.shapes import described
from tao_sdk.platforms.lepton.status import has_ended, is_being_stopped, is_stopped, replica_of
from tao_sdk.platforms.lepton.submit import Submitter
from tao_sdk.platforms.lepton.workspace import Workspace
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.rest import RefusedError
from tao_sdk.result_record import ResultRecord


class LeptonBackend(Backend):
    """Runs jobs in a workspace."""

    platform = "lepton"
    poll_seconds = 2.0
    submit_parallelism = 4
    transport: LeptonClient

    def __init__(self, access: WorkspaceAccess, folder: Path) -> None:
        self.transport = LeptonClient(access)
        self.workspace = Workspace(self.transport)
        self._files = JobFiles(folder)
        self._submitter = Submitter(self.transport, self._files)
        # A client of its own: `transport.calls` counts what an answer costs.
        self._cleanup = Cleanup(LeptonClient(access), self._files, folder / "last-sweep")
        self._logs = JobLogs(self.transport)
        self._observer = Observer(
            self.transport, self.workspace, self._files, self._cleanup, self._logs
        )
        self._collector = EvidenceCollector(self.transport, self._logs, self._files)
        self._probe = volume_probe.VolumeProbe(self.transport, self.workspace, self._logs)

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        planning.refuse_impossible(request)
        with self.transport.reaching():
            self.workspace.require()
            return planning.make_plan(request, identity, self.workspace, self.transport.access)

    def submit(self, plan: Plan) -> Submission:
        objects: job_spec.Objects = plan.payload
        self._collector.remember_secrets(plan.job_id, objects.secrets)
        try:
            with self.transport.reaching():
                made = self._submitter.make(objects)
        except SubmissionRejectedError:
            self._files.unmark(plan.job_id, naming.FINGERPRINTS)
            raise
        return _submission(plan.intent, made, "submitted")

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        with self.transport.reaching():
            if doubt := self._observer.doubt():
                raise BackendUnreachableError(doubt)
            found = self._submitter.settle(jobs)
        settled: dict[str, Submission | None] = {}
        for job in jobs:
            made = found[job.job_id]
            if made is None:
                self._cleanup.sweep_soon()  # its requests may still arrive
            settled[job.job_id] = _submission(job.native, made, "adopted") if made else None
        return settled

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        with self.transport.reaching():
            return self._observer.observe(jobs)

    def elsewhere(self, jobs: Sequence[JobRef]) -> Mapping[str, str]:
        return self.workspace.elsewhere(jobs)

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        with self.transport.reaching():
            return self._cleanup.clean(jobs, self._observer.ended(jobs))

    def sweep(self) -> None:
        with self.transport.reaching():
            self._cleanup.sweep_if_due()

    def cancel(self, job: JobRef) -> None:
        with self.transport.reaching():
            found = self.transport.job(job.native["id"])
            if found is not None and has_ended(found) and not is_stopped(found):
                self._files.unmark(job.job_id, CANCELED)  # it ended by itself
                return
            self._files.mark(job.job_id, CANCELED)
            if found is not None and not is_stopped(found):
                self._stop(job)

    def _stop(self, job: JobRef) -> None:
        try:
            path = naming.below(naming.JOBS, job.native["id"])
            self.transport.patch(path, {"spec": {"stopped": True}})
        except RefusedError as error:
            if not error.missing:  # gone since
                self._files.unmark(job.job_id, CANCELED)
                raise
        except BackendUnreachableError:
            # The answer may be lost, and not the order. Where that cannot be seen, the mark stays:
            # the stop is ours if it comes.
            found = self.transport.job(job.native["id"])
            if found is not None and not is_being_stopped(found):
                self._files.unmark(job.job_id, CANCELED)
                raise

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        return [self._logs.source(job, rank) for rank in range(int(job.native["nodes"]))]

    def close(self) -> None:
        """Close idle connections."""
        self._cleanup.close()
        self.transport.close()

    # ------------------------------------------------------------------ explaining

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        self._collector.begin()
        return ask_each(jobs, self._evidence)

    def _evidence(self, job: JobRef) -> RawEvidence:
        if not job.native["id"]:
            return RawEvidence(Evidence())
        with self.transport.reaching():
            return self._collector.evidence(job)

    def stuck(self, job: JobRef) -> Evidence | None:
        with self.transport.reaching():
            return self._collector.stuck(job)

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        if not job.native["id"]:
            return []
        with self.transport.reaching():
            found = self._logs.replicas(job)
        shown = [replica_of(one, job.native["id"], n) for n, one in enumerate(found)]
        return sorted(shown, key=lambda one: int(one["rank"]))

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        if not job.native["id"]:
            return []
        with self.transport.reaching():
            return self._logs.records(job)

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        if not job.native["results"]:
            return {}
        return volume_programs.parse_files(self._look_at_results(job, volume_programs.FILES))

    def result_source(self, job: JobRef) -> VolumeResults | None:
        if not job.native["results"]:
            return None
        source, _, folder = job.native["results"]
        volume = source.partition(":")[2] or source
        return VolumeResults(self.transport, job.results_dir, volume, f"{folder}/{job.job_id}")

    # ------------------------------------------------------------------ what a workspace has

    def shapes(self) -> list[dict[str, Any]]:
        """The shapes of machines that the workspace offers."""
        with self.transport.reaching():
            names = {group.id: group.name for group in self.workspace.groups()}
            return [described(shape, names) for shape in self.workspace.shapes()]

    def volumes(self, group: str | None) -> list[dict[str, str]]:
        """Shared storage of one node group, or of all."""
        with self.transport.reaching():
            ids = [one.id for one in self.workspace.groups() if group in (None, one.id, one.name)]
            found = [volume for one in ids for volume in self.workspace.volumes(one)]
        return [{"name": one.name, "from_path": one.from_path, "type": one.kind} for one in found]

    def storage_permissions(self, volume: str, group: str | None) -> list[dict[str, Any]]:
        """Which folders of a volume may be mounted."""
        with self.transport.reaching():
            return self.workspace.permissions(volume, group or "")

    # ------------------------------------------------------------------ paths

    def delete_artifacts(self, job: JobRef) -> bool:
        with self.transport.reaching():
            results = job.native["results"]
            if results and "removed" not in self._look_at_results(job, volume_probe.REMOVE):
                return False
            self._submitter.remove_secrets(job.native["secrets"])
            if job.native["id"]:
                self._submitter.remove_job(job.native["id"])
        self._files.remove(job.job_id)
        return True

    def check_path(self, path: str) -> bool:
        return "yes" in self._look_at(path, volume_programs.EXISTS).split()

    def list_path(self, path: str) -> list[str]:
        return sorted(filter(None, self._look_at(path, volume_programs.LIST).splitlines()))

    # ------------------------------------------------------------------ inner workings

    def _look_at(self, path: str, program: str) -> str:
        with self.transport.reaching():
            window, folder = self._probe.window(path, settings.get("LEPTON_LOOK_IMAGE"))
            return self._probe.ask(window, folder, program)

    def _look_at_results(self, job: JobRef, program: str) -> str:
        source, path, folder = job.native["results"]
        window = volume_probe.Window(
            source,
            path,
            job.native["group"],
            job.native["image"],
            tuple(job.native["pull_secrets"]),
        )
        with self.transport.reaching():
            return self._probe.ask(window, f"{folder}/{job.job_id}", program)


def _submission(intent: Mapping[str, Any], job: Mapping[str, Any], message: str) -> Submission:
    server_id = naming.id_of(job)
    return Submission(server_id, {**intent, "id": server_id}, message)
