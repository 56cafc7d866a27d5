"""The SLURM platform: one program on the login host for each thing to be done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, PlatformError, SubmissionRejectedError
from tao_sdk.failures import explain
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import (
    MISSING,
    Backend,
    JobIdentity,
    JobRef,
    LogChunk,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.evidence import RawEvidence, redacted
from tao_sdk.platforms.remote.framing import Section, table
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.slurm import arrays, logs
from tao_sdk.platforms.slurm import plan as planning
from tao_sdk.platforms.slurm.client import NotReachedError, SshTransport
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings
from tao_sdk.platforms.slurm.evidence import Case, gather_evidence
from tao_sdk.platforms.slurm.image_cache import ImageCache
from tao_sdk.platforms.slurm.image_conversion import Listener
from tao_sdk.platforms.slurm.image_names import parse_image
from tao_sdk.platforms.slurm.job_folder import JobFolder
from tao_sdk.platforms.slurm.options import OPTIONS
from tao_sdk.platforms.slurm.parse import Answer, JobFiles, parse_answer
from tao_sdk.platforms.slurm.probe import Facts, parse_facts
from tao_sdk.platforms.slurm.retries import Exhausted, retry_for, wants_explanation
from tao_sdk.platforms.slurm.status import Verdict, judge
from tao_sdk.result_record import ResultRecord

if TYPE_CHECKING:
    from tao_sdk.results import ResultSource

_FACTS_SECONDS = 600.0


class SlurmBackend(Backend):
    """Runs jobs on a cluster."""

    platform = "slurm"
    options = OPTIONS
    poll_seconds = 2.0
    transport: SshTransport

    def __init__(self, cluster: ClusterSettings, on_convert: Listener) -> None:
        self.cluster = cluster
        self.transport = SshTransport(cluster.login)
        self.images = ImageCache(cluster, self.transport, on_convert)
        self._facts: tuple[float, Facts] | None = None
        self._unknown: dict[str, JobFiles] = {}

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
        self.images.have_all(plans)

    def submit(self, plan: Plan) -> Submission:
        staged: planning.Staged = plan.payload
        job_folder = staged.job_folder
        about_image = self.images.have(plan)
        try:
            sections = self.transport.run(
                "submit",
                {
                    "base": job_folder.base,
                    "job_id": plan.job_id,
                    "job_dir": job_folder.job_dir,
                    "token": plan.identity.token,
                    "name": plan.identity.name,
                },
                staged.archive(),
                repeatable=False,
            )
        except NotReachedError as error:
            raise SubmissionRejectedError(f"the login host was not reached: {error}") from error
        answer = _only(sections)
        if answer.name == "submitted":
            native = self._native(plan.intent, job_folder, answer.words)
            return Submission(plan.identity.name, native, _queued(answer.words, about_image))
        if answer.name == "withdrawn":
            raise SubmissionRejectedError("another process declared this job never submitted")
        if answer.name == "unwritable":
            raise SubmissionRejectedError(
                f"{job_folder.base} cannot be used: {answer.words}; set SLURM_BASE_RESULTS_DIR to "
                "a shared folder of yours"
            )
        said = answer.text.strip()
        if answer.name == "doubtful":
            raise BackendUnreachableError(f"sbatch: {said}")
        raise SubmissionRejectedError(f"Slurm refuses the job: {said}")

    def submit_together(self, plans: Sequence[Plan]) -> Mapping[str, Submission]:
        found: dict[str, Submission] = {}
        for array in arrays.group(self.images.usable(plans)):
            found.update(self._submit_array(array))
        return found

    def _submit_array(self, array: arrays.Array) -> dict[str, Submission]:
        base = self.cluster.base
        answer = _only(
            self.transport.run(
                "submit_array",
                {"base": base, "folder": f"{base}/jobs/{array.folder}", "name": array.name},
                arrays.archive(array, base),
                repeatable=False,
            )
        )
        if answer.name == "doubtful":
            raise BackendUnreachableError(f"sbatch: {answer.text.strip()}")
        if answer.name != "submitted":
            return {}  # each is told by itself what is wrong
        return {
            plan.job_id: Submission(
                plan.identity.name,
                self._native(plan.intent, plan.payload.job_folder, f"{answer.words}_{index}"),
                _queued(f"{answer.words}_{index}", self.images.have(plan)),
            )
            for index, plan in enumerate(array.plans)
        }

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        rows = [
            (job.job_id, _folder_of(job).job_dir, job.identity.token, job.native["cluster"])
            for job in jobs
        ]
        by_id = {job.job_id: job for job in jobs}
        settled: dict[str, Submission | None] = {}
        for section in _reached(self.transport.run("settle", payload=table(rows))):
            job_id, _, slurm_id = section.words.partition(" ")
            job = by_id[job_id]
            if section.name == "none":
                settled[job_id] = None
            elif section.name == "adopted":
                native = self._native(job.native, _folder_of(job), slurm_id)
                settled[job_id] = Submission(job.identity.name, native, "adopted")
        return settled

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        answer = self._look(jobs)
        observed, cases = {}, []
        for job in jobs:
            case = self._case(job, answer)
            if why := _why_unjudged(case, answer):
                observed[job.job_id] = Observation(None, unreachable=why)
            else:
                cases.append(case)
        unknown = [case.job.job_id for case in cases if case.verdict.state is None]
        self._unknown = {job_id: answer.files.get(job_id, JobFiles()) for job_id in unknown}
        doubtful = [case for case in cases if wants_explanation(case.verdict)]
        explained = gather_evidence(self.transport, doubtful)
        for case in cases:
            raw = explained.get(case.job.job_id)
            known = explain(redacted(raw, settings.known_secrets())) if raw else None
            again = self._try_again(case, answer, known)
            observed[case.job.job_id] = again or _observation(case.verdict)
        # What explains a failure is read before it goes.
        over = (JobState.COMPLETE, JobState.CANCELED)
        self._clean([job for job in jobs if observed[job.job_id].state in over])
        return observed

    def _case(self, job: JobRef, answer: Answer) -> Case:
        files = answer.files.get(job.job_id)
        return Case(
            job,
            _folder_of(job).job_dir,
            judge(job.job_id, _key(job), answer),
            _nodes(job),
            files.records if files else (),
        )

    def _try_again(
        self, case: Case, answer: Answer, analysis: Mapping[str, Any] | None
    ) -> Observation | None:
        """Submit a job again whose end was not its own fault; None where it was."""
        job, verdict = case.job, case.verdict
        files = answer.files.get(job.job_id)
        if files is None:
            return None
        retry = retry_for(
            verdict,
            files,
            analysis,
            budget=self.cluster.retries,
            pause=self.cluster.retry_seconds,
        )
        if retry is None:
            return None
        if isinstance(retry, Exhausted):
            ended = _observation(verdict)
            return ended._replace(message=f"{ended.message}; {retry.message}")
        said = _only(
            self.transport.run(
                "resubmit",
                {
                    "job_id": job.job_id,
                    "job_dir": _folder_of(job).job_dir,
                    "token": job.identity.token,
                    "name": job.identity.name,
                    "number": str(retry.number),
                    "cause": retry.cause,
                    "pause": str(retry.pause),
                    "exclude": retry.exclude,
                },
                repeatable=False,
            )
        )
        why = f"{verdict.native} ({retry.cause}) on {verdict.nodes or 'its nodes'}"
        budget = f"retry {retry.used} of {self.cluster.retries}"
        words = said.text.strip()
        if said.name == "submitted":
            again = f"submitted again as {said.words} after {why}; {budget}"
        elif said.name in ("busy", "doubtful"):
            again = f"being submitted again after {why}; {budget}" + (words and f" ({words})")
        else:
            ended = _observation(verdict)
            told = f"Slurm refuses another attempt: {words}" if words else "unwanted since: let be"
            return ended._replace(message=f"{ended.message}; {told}")
        return Observation(JobState.PENDING, again)

    def _look(self, jobs: Sequence[JobRef]) -> Answer:
        rows = [
            (
                job.job_id,
                job_folder.job_dir,
                job_folder.results,
                _key(job) or "-",
                job.native["cluster"],
            )
            for job in jobs
            for job_folder in [_folder_of(job)]
        ]
        return parse_answer(_reached(self.transport.run("observe", payload=table(rows))))

    def _look_at(self, job: JobRef) -> Answer:
        answer = self._look([job])
        if why := answer.away.get(job.job_id):
            raise BackendUnreachableError(why)
        return answer

    def _clean(self, jobs: Sequence[JobRef]) -> None:
        """Take away the credentials of jobs that will not run again."""
        if jobs:
            rows = [(job.job_id, _folder_of(job).job_dir) for job in jobs]
            self.transport.run("clean", payload=table(rows))

    def cancel(self, job: JobRef) -> None:
        about = {
            "job_dir": _folder_of(job).job_dir,
            "slurm_id": _key(job),
            "name": job.identity.name,
            "cluster": str(job.native["cluster"]),
        }
        _reached(self.transport.run("cancel", about))

    def read_log(
        self, job: JobRef, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        known = logs.parse_cursor(cursor)
        wanted = "\n".join(f"{name} {offset}" for name, offset in known.items())
        sections = self.transport.run(
            "logs",
            {
                "job_dir": _folder_of(job).job_dir,
                "name": job.identity.name,
                "wanted": wanted,
                "tail": "" if tail is None or known else str(tail),
                "limit": str(limit),
            },
        )
        _refuse_away(sections)
        labelled = _nodes(job) > 1
        return logs.chunk_of(sections, known, labelled=labelled, flush=flush)

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        answer = self._look(jobs)
        judged = [job for job in jobs if job.job_id not in answer.away]
        found = gather_evidence(self.transport, [self._case(job, answer) for job in judged])
        self._clean(judged)
        return found

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        # Asked for a job that `observe` has just missed: then what it saw need not be read again.
        files = self._unknown.pop(job.job_id, None) or self._look_at(job).files.get(job.job_id)
        return sorted(files.records, key=lambda record: record.rank) if files else []

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        [answer] = self.transport.run("files", {"path": _folder_of(job).results})
        found = {}
        for entry in answer.data.split(b"\0")[:-1]:
            size, _, path = entry.decode("utf-8", "replace").partition(" ")
            found[path] = int(size)
        return found

    def result_source(self, job: JobRef) -> ResultSource:
        from tao_sdk.platforms.slurm.results import SlurmResults

        folder = planning.cluster_path("results_dir", job.results_dir)
        return SlurmResults(self.transport, job.results_dir, folder)

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        verdict = judge(job.job_id, _key(job), self._look_at(job))
        return [
            {
                "id": f"{verdict.slurm_id or _key(job)}.{rank}",
                "rank": rank,
                "status": (verdict.state or JobState.UNKNOWN).value,
                "nodes": verdict.nodes,
                "reason": verdict.message,
            }
            for rank in range(_nodes(job))
        ]

    def delete_artifacts(self, job: JobRef) -> bool:
        job_folder = _folder_of(job)
        sections = self.transport.run(
            "delete", {"job_dir": job_folder.job_dir, "results": job_folder.results}
        )
        _refuse_away(sections)
        return _only(sections).name == "done"

    def check_path(self, path: str) -> bool:
        asked = planning.cluster_path("check_path", path)
        sections = self.transport.run("paths", payload=f"{asked}\n".encode())
        answer = _only(sections)
        _refuse_denied(answer, asked)
        return answer.name != "missing"

    def list_path(self, path: str) -> list[str]:
        asked = planning.cluster_path("list_path", path)
        answer = _only(self.transport.run("list", {"path": asked}))
        _refuse_denied(answer, asked)
        if answer.name == "missing":
            return []
        if answer.name == "file":
            return [path.rstrip("/").rpartition("/")[2]]
        return sorted(name.decode("utf-8", "replace") for name in answer.data.split(b"\0")[:-1])

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
        about_image = self.images.question(parse_image(request.image) if request.image else None)
        if about_image:
            asked["convert_look"] = about_image
        if paths:
            asked["paths"] = {}
        if not asked:
            return self.facts(), []
        listed = "".join(f"{path}\n" for path in paths).encode()
        answers = self.transport.run_together(asked, listed)
        if "probe" in answers:
            self._learn(answers["probe"])
        if about_image:
            self.images.hear(about_image, answers["convert_look"])
        found = answers.get("paths", ())
        return self.facts(), [section.words for section in found if section.name == "missing"]

    def _native(
        self, intent: Mapping[str, Any], job_folder: JobFolder, slurm_id: str
    ) -> dict[str, Any]:
        return {**intent, "slurm_job_id": slurm_id, "job_dir": job_folder.job_dir}


def _queued(slurm_id: str, about_image: str) -> str:
    return f"queued as {slurm_id}; {about_image}" if about_image else f"queued as {slurm_id}"


def _folder_of(job: JobRef) -> JobFolder:
    return JobFolder(str(job.native["base"]), job.job_id)


def _key(job: JobRef) -> str:
    """Slurm's id of the first submission; "" before there was one."""
    return str(job.native.get("slurm_job_id", ""))


def _nodes(job: JobRef) -> int:
    return int(job.native.get("nodes", 1))


def _observation(verdict: Verdict) -> Observation:
    if verdict.state is None:
        return MISSING
    return Observation(
        verdict.state,
        verdict.message,
        verdict.exit_code,
        started_at=verdict.started_at,
        ended_at=verdict.ended_at,
        cancel_aware=True,
    )


def _why_unjudged(case: Case, answer: Answer) -> str:
    """Why nothing can be said about a job; "" where something can."""
    if why := answer.away.get(case.job.job_id):
        return why
    if case.verdict.state is None and answer.silent:
        return f"Slurm's accounting does not answer: {answer.silent}"
    return ""


def _only(sections: Sequence[Section]) -> Section:
    if len(sections) != 1:
        raise BackendUnreachableError("the login host gave no answer that makes sense")
    return sections[0]


def _refuse_away(sections: Sequence[Section]) -> None:
    for section in sections:
        if section.name == "away":
            raise BackendUnreachableError(f"{section.words} is not there (is it mounted?)")


def _refuse_denied(answer: Section, path: str) -> None:
    if answer.name == "denied":
        raise PlatformError(f"{path}: permission denied, seen from the login host")


def _reached(sections: list[Section]) -> list[Section]:
    """The sections, unless Slurm itself could not be asked."""
    for section in sections:
        if section.name == "unreachable":
            raise BackendUnreachableError(f"Slurm does not answer: {section.words}")
    return sections
