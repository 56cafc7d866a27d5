"""The seam to SLURM: one program on the login host for each primitive."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import PlatformError
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
from tao_sdk.platforms.slurm import arrays, logs
from tao_sdk.platforms.slurm import observe as observing
from tao_sdk.platforms.slurm import plan as planning
from tao_sdk.platforms.slurm import submit as submitting
from tao_sdk.platforms.slurm.client import SshTransport, mounted, only, reached
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings
from tao_sdk.platforms.slurm.evidence import gather_evidence
from tao_sdk.platforms.slurm.image_cache import ImageCache
from tao_sdk.platforms.slurm.image_conversion import Listener
from tao_sdk.platforms.slurm.image_names import parse_image
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
        self._facts: tuple[float, Facts] | None = None
        self._unknown: dict[str, JobFiles] = {}
        self._shared = SharedQueue(cluster.login)
        self._accepted = AcceptedAge()
        self._states: dict[str, JobState | None] = {}
        self._exits: dict[str, str] = {}

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        planning.refuse_impossible(request)
        data = planning.data_of(request)
        wanted = planning.paths_of(request, data)
        facts, missing = self._look_around(request, list(wanted))
        staged = planning.stage(request, identity, self.cluster, facts, self.images.folder)
        planning.refuse_missing(wanted, missing)
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
            warnings=(*planning.notes(staged, data, facts), *self.images.notes(staged, facts)),
            payload=staged,
        )

    def provide(self, plans: Sequence[Plan]) -> None:
        self.images.ensure_images(plans)

    def submit(self, plan: Plan) -> Submission:
        note = self.images.ensure_image(plan)
        return _submission(plan, submitting.submit(self.transport, plan), note)

    def submit_together(self, plans: Sequence[Plan]) -> Mapping[str, Submission]:
        found: dict[str, Submission] = {}
        for array in arrays.group(self.images.usable(plans)):
            ids = submitting.submit_array(self.transport, self.cluster.base, array)
            for plan in array.plans:
                if plan.job_id in ids:
                    note = self.images.ensure_image(plan)
                    found[plan.job_id] = _submission(plan, ids[plan.job_id], note)
        return found

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        ids = submitting.settle(self.transport, jobs)
        return {job.job_id: _adopted(job, ids[job.job_id]) for job in jobs if job.job_id in ids}

    @property
    def retry_limits(self) -> RetryLimits:
        return RetryLimits(self.cluster.retries, self.cluster.retry_seconds, "SLURM_MAX_RETRIES")

    def resubmit(self, job: JobRef, attempt: Attempt, pause_seconds: int, why: str) -> Observation:
        answer = submitting.resubmit(self.transport, job, attempt, pause_seconds)
        said = answer.text.strip()
        if answer.name == "submitted":
            return Observation(JobState.PENDING, f"submitted again as {answer.words} after {why}")
        if answer.name in ("busy", "doubtful"):
            doubt = said and f" ({said})"
            return Observation(JobState.PENDING, f"being submitted again after {why}{doubt}")
        refused = (
            f"Slurm refuses another attempt: {said}" if said else "to be cancelled, so no retry"
        )
        ended = self.observe([job])[job.job_id]
        return ended._replace(message=f"{ended.message}; {refused}", attempts=())

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        max_age = self._accepted.take()
        answer = self._shared_answer(jobs, max_age)
        if answer is None and max_age:
            with self._shared.turn():
                answer = self._shared_answer(jobs, max_age) or self._ask(jobs)
        answer = answer or self._ask(jobs)
        observed = {job.job_id: observing.observation(job, answer) for job in jobs}
        self._states |= {job_id: seen.state for job_id, seen in observed.items()}
        self._unknown = {
            job_id: answer.files.get(job_id, JobFiles())
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
        """The newest answer of any process, if it tells about all these jobs."""
        newest = self._shared.newest(max_age)
        if newest is None:
            return None
        answer = parse_answer([Section("queue", "", newest.queue)])
        if any(observing.verdict_of(job, answer).state is None for job in jobs):
            return None  # one has ended: how, its folder tells
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
        about = {
            "job_dir": folder_of(job).job_dir,
            "slurm_id": slurm_id_of(job),
            "name": job.identity.name,
            "cluster": str(job.native["cluster"]),
        }
        reached(self.transport.run("cancel", about))

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

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        answer = observing.ask(self.transport, jobs)
        judged = [job for job in jobs if job.job_id not in answer.away]
        return gather_evidence(self.transport, [observing.case_of(job, answer) for job in judged])

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        # Asked for right after `observe` missed the job: what it read is still here.
        files = self._unknown.pop(job.job_id, None)
        if files is None:
            answer = observing.ask_one(self.transport, job)
            files = answer.files.get(job.job_id, JobFiles())
        return sorted(files.records, key=lambda record: record.rank)

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        [answer] = self.transport.run("files", {"path": folder_of(job).results})
        return parse_sizes(answer.data)

    def result_source(self, job: JobRef) -> ResultSource:
        from tao_sdk.platforms.slurm.results import SlurmResults

        folder = planning.cluster_path("results_dir", job.results_dir)
        return SlurmResults(self.transport, job.results_dir, folder)

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
        sections = self.transport.run(
            "delete", {"job_dir": job_folder.job_dir, "results": job_folder.results}
        )
        return only(mounted(sections)).name == "done"

    def check_path(self, path: str) -> bool:
        asked = planning.cluster_path("check_path", path)
        sections = self.transport.run("paths", payload=f"{asked}\n".encode())
        answer = only(sections)
        _refuse_denied(answer, asked)
        return answer.name != "missing"

    def list_path(self, path: str) -> list[str]:
        asked = planning.cluster_path("list_path", path)
        answer = only(self.transport.run("list", {"path": asked}))
        _refuse_denied(answer, asked)
        return parse_names(answer, path)

    # ------------------------------------------------------------------ inner workings

    def facts(self) -> Facts:
        """What the cluster has; asked again every ten minutes."""
        if self._facts is None or time.monotonic() - self._facts[0] > _FACTS_SECONDS:
            self._learn(self.transport.run("probe", self._about_site()))
        assert self._facts is not None, "just learned"  # noqa: S101 - our own mistake
        return self._facts[1]

    def _learn(self, answer: Sequence[Section]) -> None:
        self._facts = (time.monotonic(), parse_facts(answer))

    def _about_site(self) -> dict[str, str]:
        mounts = "\n".join(mount.source for mount in self.cluster.mounts)
        return {"base": self.cluster.base, "mounts": mounts}

    def _look_around(self, request: JobRequest, paths: Sequence[str]) -> tuple[Facts, list[str]]:
        """What the cluster has, and which of the paths are missing: all of it in one round trip,
        or none where everything is known.
        """
        asked: dict[str, dict[str, str]] = {}
        if self._facts is None or time.monotonic() - self._facts[0] > _FACTS_SECONDS:
            asked["probe"] = self._about_site()
        image_query = self.images.cache_query(parse_image(request.image) if request.image else None)
        if image_query:
            asked["convert_look"] = image_query
        if paths:
            asked["paths"] = {}
        if not asked:
            return self.facts(), []
        listed = "".join(f"{path}\n" for path in paths).encode()
        answers = self.transport.run_together(asked, listed)
        if "probe" in answers:
            self._learn(answers["probe"])
        if image_query:
            self.images.store_answer(image_query, answers["convert_look"])
        found = answers.get("paths", ())
        return self.facts(), [section.words for section in found if section.name == "missing"]


def _submission(plan: Plan, slurm_id: str, note: str) -> Submission:
    native = submitting.native_of(plan.intent, plan.payload.job_folder, slurm_id)
    queued = f"Queued as Slurm job {slurm_id}"
    return Submission(plan.identity.name, native, f"{queued}; {note}" if note else queued)


def _adopted(job: JobRef, slurm_id: str | None) -> Submission | None:
    if slurm_id is None:
        return None
    native = submitting.native_of(job.native, folder_of(job), slurm_id)
    return Submission(job.identity.name, native, f"Queued as Slurm job {slurm_id}")


def _refuse_denied(answer: Section, path: str) -> None:
    if answer.name == "denied":
        raise PlatformError(f"{path}: permission denied, seen from the login host")
