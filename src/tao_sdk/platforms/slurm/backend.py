"""The seam to SLURM: one program on the login host for each primitive."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import PlatformError
from tao_sdk.failures import Evidence
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import (
    Attempt,
    Backend,
    JobIdentity,
    JobRef,
    LogChunk,
    LogSource,
    Observation,
    Plan,
    RetryLimits,
    Submission,
)
from tao_sdk.platforms.capabilities import PollBackoff
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.remote.framing import Section, table
from tao_sdk.platforms.remote.result_listing import parse_names, parse_sizes
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.slurm import logs
from tao_sdk.platforms.slurm import observe as observing
from tao_sdk.platforms.slurm import plan as planning
from tao_sdk.platforms.slurm import submit as submitting
from tao_sdk.platforms.slurm.client import SshTransport, mounted, only, reached
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings
from tao_sdk.platforms.slurm.evidence import gather_evidence
from tao_sdk.platforms.slurm.image_cache import ImageCache
from tao_sdk.platforms.slurm.image_conversion import Listener
from tao_sdk.platforms.slurm.job_folder import folder_of, node_count, slurm_id_of
from tao_sdk.platforms.slurm.parse import Answer, JobFiles, parse_answer
from tao_sdk.platforms.slurm.polling import AcceptedAge, SharedQueue, SlurmBackoff
from tao_sdk.platforms.slurm.probe import Facts, parse_facts
from tao_sdk.result_record import ResultRecord

if TYPE_CHECKING:
    from tao_sdk.results import ResultSource

_FACTS_SECONDS = 600.0


class SlurmBackend(Backend):
    """Runs jobs on a cluster."""

    platform = "slurm"
    transport: SshTransport

    def __init__(self, cluster: ClusterSettings, on_convert: Listener) -> None:
        self.cluster = cluster
        self.transport = SshTransport(cluster.login)
        self.images = ImageCache(cluster, self.transport, on_convert)
        self._facts: Facts | None = None
        self._facts_from = 0.0
        self._unknown: dict[str, JobFiles] = {}
        self._shared = SharedQueue(cluster.login)
        self._accepted = AcceptedAge()
        self._states: dict[str, JobState | None] = {}
        self._exits: dict[str, str] = {}

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        required = planning.required_paths(request)
        facts, missing = self._probe(request.image, list(required))
        staged = planning.stage(request, identity, self.cluster, facts, self.images.folder)
        planning.refuse_missing(required, missing)
        job_folder = staged.job_folder
        return Plan(
            identity=identity,
            platform=self.platform,
            request=request,
            artefacts=planning.artefacts(staged),
            intent={
                "base": job_folder.base,
                "cluster": facts.name,
                "nodes": staged.resources.nodes,
            },
            results_dir=f"lustre://{job_folder.results}",
            warnings=(
                *planning.notes(request, staged, facts),
                *self.images.notes(staged, facts),
            ),
            payload=staged,
        )

    def provide(self, plans: Sequence[Plan]) -> None:
        self.images.ensure_images(plans)

    def submit(self, plan: Plan) -> Submission:
        note = self.images.ensure_image(plan)
        slurm_id = submitting.submit(self.transport, plan)
        return submitting.submission(plan.identity, plan.intent, slurm_id, note)

    def submit_together(self, plans: Sequence[Plan]) -> Mapping[str, Submission]:
        found: dict[str, Submission] = {}
        for some in submitting.alike(self.images.usable(plans)):
            ids = submitting.submit_array(self.transport, self.cluster.base, some)
            for plan in some:
                if slurm_id := ids.get(plan.job_id):
                    note = self.images.ensure_image(plan)
                    found[plan.job_id] = submitting.submission(
                        plan.identity, plan.intent, slurm_id, note
                    )
        return found

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        return submitting.settle(self.transport, jobs)

    @property
    def retry_limits(self) -> RetryLimits:
        return RetryLimits(self.cluster.retries, self.cluster.retry_seconds, "SLURM_MAX_RETRIES")

    def resubmit(self, job: JobRef, attempt: Attempt, pause_seconds: int, why: str) -> Observation:
        answer = submitting.resubmit(self.transport, job, attempt, pause_seconds)
        reason = answer.text.strip()
        if answer.name == "submitted":
            return Observation(JobState.PENDING, f"submitted again as {answer.words} after {why}")
        if answer.name in ("busy", "doubtful"):
            doubt = reason and f" ({reason})"
            return Observation(JobState.PENDING, f"being submitted again after {why}{doubt}")
        if reason:
            note = f"Slurm refuses another attempt: {reason}"
        else:
            note = "to be cancelled, so no retry"
        ended = self.observe([job])[job.job_id]
        return ended._replace(message=f"{ended.message}; {note}", attempts=())

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        max_age = self._accepted.take()
        answer = self._shared_answer(jobs, max_age) if max_age else self._ask(jobs)
        if answer is None:
            with self._shared.turn():
                answer = self._shared_answer(jobs, max_age) or self._ask(jobs)
        observed = {job.job_id: observing.observation(job, answer) for job in jobs}
        self._states |= {job_id: seen.state for job_id, seen in observed.items()}
        self._unknown = {
            job_id: answer.files_of(job_id)
            for job_id, seen in observed.items()
            if seen.state is None and not seen.unreachable
        }
        return observed

    def _ask(self, jobs: Sequence[JobRef]) -> Answer:
        asked_at = self._shared.now()
        answer = observing.ask(self.transport, jobs)
        self._shared.keep(asked_at, answer.queue_text)
        return answer

    def _shared_answer(self, jobs: Sequence[JobRef], max_age: float) -> Answer | None:
        """The newest answer of any process on this machine, if all these jobs are alive in it."""
        newest = self._shared.newest(max_age)
        if newest is None:
            return None
        answer = parse_answer([Section("queue", "", newest.queue)])
        if any(observing.verdict_of(job, answer).state is None for job in jobs):
            return None  # it has ended; its folder shows how
        self._accepted.used = newest.age
        return answer

    def backoff(self, job_ids: Sequence[str]) -> PollBackoff:
        def states() -> Sequence[object]:
            return [(self._states.get(job_id), self._exits.get(job_id)) for job_id in job_ids]

        return SlurmBackoff(states, self._accepted)

    def advance(self, jobs: Sequence[JobRef]) -> set[str]:
        """Remove the credentials of jobs that have ended."""
        rows = [(job.job_id, folder_of(job).job_dir, job.native["cluster"]) for job in jobs]
        sections = self.transport.run("clean", payload=table(rows))
        return {section.words for section in sections if section.name == "cleaned"}

    def cancel(self, job: JobRef) -> None:
        variables = {
            "job_dir": folder_of(job).job_dir,
            "slurm_id": slurm_id_of(job),
            "name": job.identity.name,
            "cluster": str(job.native["cluster"]),
        }
        reached(self.transport.run("cancel", variables))

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        # One: a round trip reads the files of all ranks and attempts.
        return [PolledLog(partial(self._read_log, job))]

    def _read_log(
        self, job: JobRef, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        known = logs.parse_cursor(cursor)
        wanted = "\n".join(f"{name} {offset}" for name, offset in known.items())
        sections = self.transport.run(
            "logs",
            {
                "job_dir": folder_of(job).job_dir,
                "name": job.identity.name,
                "wanted": wanted,
                "tail": "" if tail is None or known else str(tail),
                "limit": str(limit),
            },
        )
        for section in sections:
            if section.name == "exits":
                self._exits[job.job_id] = section.words
        labelled = node_count(job) > 1
        return logs.chunk_of(mounted(sections), known, labelled=labelled, flush=flush)

    def stuck(self, job: JobRef) -> Evidence | None:
        verdict = observing.verdict_of(job, observing.ask_one(self.transport, job))
        return Evidence(reason=verdict.message, never_started=True) if verdict.stuck else None

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        return gather_evidence(self.transport, jobs)

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        # Called right after `observe` missed the job: what it read is still here.
        files = self._unknown.pop(job.job_id, None)
        if files is None:
            files = observing.ask_one(self.transport, job).files_of(job.job_id)
        return sorted(files.records, key=lambda record: record.rank)

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        [answer] = self.transport.run("files", {"path": folder_of(job).results})
        return parse_sizes(answer.data)

    def result_source(self, job: JobRef) -> ResultSource:
        from tao_sdk.platforms.remote.results import RemoteResults

        folder = planning.cluster_path("results_dir", job.results_dir)
        user = self.transport.login.user
        return RemoteResults(self.transport, job.results_dir, folder, user, "on the cluster")

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        verdict = observing.verdict_of(job, observing.ask_one(self.transport, job))
        return [
            {
                "id": f"{verdict.slurm_id or slurm_id_of(job)}.{rank}",
                "rank": rank,
                "status": (verdict.state or JobState.UNKNOWN).value,
                "nodes": verdict.nodes,
                "reason": verdict.message,
            }
            for rank in range(node_count(job))
        ]

    def delete_artifacts(self, job: JobRef) -> bool:
        job_folder = folder_of(job)
        variables = {
            "job_dir": job_folder.job_dir,
            "results": job_folder.results,
            "cluster": str(job.native["cluster"]),
        }
        sections = reached(self.transport.run("delete", variables))
        return only(mounted(sections)).name == "done"

    def check_path(self, path: str) -> bool:
        folder = planning.cluster_path("check_path", path)
        answer = only(self.transport.run("paths", payload=f"{folder}\n".encode()))
        _refuse_denied(answer, folder)
        return answer.name != "missing"

    def list_path(self, path: str) -> list[str]:
        folder = planning.cluster_path("list_path", path)
        answer = only(self.transport.run("list", {"path": folder}))
        _refuse_denied(answer, folder)
        return parse_names(answer, path)

    # ------------------------------------------------------------------ before a plan

    def _probe(self, image: str, paths: Sequence[str]) -> tuple[Facts, list[str]]:
        """What the cluster has, and which of the paths are missing.

        One round trip, or none where everything is known.
        """
        programs: dict[str, dict[str, str]] = {}
        known = self._facts
        if time.monotonic() - self._facts_from > _FACTS_SECONDS:
            known = None
        if known is None:
            mounts = "\n".join(mount.source for mount in self.cluster.mounts)
            programs["probe"] = {"base": self.cluster.base, "mounts": mounts}
        if image_query := self.images.cache_query(image):
            programs["convert_look"] = image_query
        if paths:
            programs["paths"] = {}
        answers: dict[str, list[Section]] = {}
        if programs:
            lines = "".join(f"{path}\n" for path in paths).encode()
            answers = self.transport.run_together(programs, lines)
        if known is None:
            known = self._facts = parse_facts(answers["probe"])
            self._facts_from = time.monotonic()
        if image_query:
            self.images.store_answer(image_query, answers["convert_look"])
        found = answers.get("paths", ())
        return known, [section.words for section in found if section.name == "missing"]


def _refuse_denied(answer: Section, path: str) -> None:
    if answer.name == "denied":
        raise PlatformError(f"{path}: permission denied, seen from the login host")
