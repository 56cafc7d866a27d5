"""The SLURM platform: one program on the login host for each thing to be done."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError, ValidationError
from tao_sdk.failures import Evidence, ReplicaEvidence, explain
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
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.slurm import arrays, logs, planning
from tao_sdk.platforms.slurm.answers import Answer, JobFiles, parse_answer
from tao_sdk.platforms.slurm.cluster import Cluster
from tao_sdk.platforms.slurm.conversion import Listener
from tao_sdk.platforms.slurm.facts import Facts, parse_facts
from tao_sdk.platforms.slurm.image_cache import ImageCache
from tao_sdk.platforms.slurm.layout import JobLayout
from tao_sdk.platforms.slurm.options import OPTIONS
from tao_sdk.platforms.slurm.remote import Section, table
from tao_sdk.platforms.slurm.retries import Exhausted, retry_for, wants_explanation
from tao_sdk.platforms.slurm.ssh import NotReachedError, SshTransport
from tao_sdk.platforms.slurm.states import Verdict, judge
from tao_sdk.result_record import ResultRecord
from tao_sdk.secrets import Secret, redact

if TYPE_CHECKING:
    from tao_sdk.results import ResultSource

_FACTS_SECONDS = 600.0
# What sbatch says when it does not know whether the controller has the job.
_DOUBTFUL = ("Socket timed out", "Unable to contact slurm controller", "Connection refused")


class SlurmBackend(Backend):
    """Runs jobs on a cluster."""

    platform = "slurm"
    options = OPTIONS
    poll_seconds = 2.0
    transport: SshTransport

    def __init__(self, cluster: Cluster, on_convert: Listener) -> None:
        self.cluster = cluster
        self.transport = SshTransport(cluster.login)
        self.images = ImageCache(cluster, self.transport, on_convert)
        self._facts: tuple[float, Facts] | None = None

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        planning.refuse_impossible(request)
        facts = self.facts()
        staged = planning.stage(request, identity, self.cluster, facts, self.images.folder)
        data = planning.data_of(request)
        self._check_paths(request, staged, data)
        layout = staged.layout
        return Plan(
            identity=identity,
            platform=self.platform,
            request=request,
            artefacts=planning.artefacts(staged),
            intent={"base": layout.base, "cluster": facts.name, "nodes": staged.shape.nodes},
            results_dir=f"lustre://{layout.results}",
            warnings=(*planning.notes(staged, data, facts), *self.images.notes(staged, facts)),
            payload=staged,
        )

    def provide(self, plans: Sequence[Plan]) -> None:
        self.images.have_all(plans)

    def submit(self, plan: Plan) -> Submission:
        staged: planning.Staged = plan.payload
        layout = staged.layout
        about_image = self.images.have(plan)
        try:
            sections = self.transport.run(
                "submit",
                {
                    "base": layout.base,
                    "job_id": plan.job_id,
                    "job_dir": layout.job_dir,
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
            native = self._native(plan.intent, layout, answer.words)
            return Submission(plan.identity.name, native, _queued(answer.words, about_image))
        if answer.name == "withdrawn":
            raise SubmissionRejectedError("another process declared this job never submitted")
        if answer.name == "unwritable":
            raise SubmissionRejectedError(
                f"{layout.base} cannot be used: {answer.words}; set SLURM_BASE_RESULTS_DIR to a "
                "shared folder of yours"
            )
        said = answer.text.strip()
        if any(words in said for words in _DOUBTFUL):
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
                {"base": base, "folder": f"{base}/jobs/{array.folder}"},
                arrays.archive(array, base),
                repeatable=False,
            )
        )
        if answer.name != "submitted":
            return {}  # each is told by itself what is wrong
        return {
            plan.job_id: Submission(
                plan.identity.name,
                self._native(plan.intent, plan.payload.layout, f"{answer.words}_{index}"),
                _queued(f"{answer.words}_{index}", self.images.have(plan)),
            )
            for index, plan in enumerate(array.plans)
        }

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        rows = [
            (job.job_id, _layout(job).job_dir, job.identity.token, job.native["cluster"])
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
                native = self._native(job.native, _layout(job), slurm_id)
                settled[job_id] = Submission(job.identity.name, native, "adopted")
        return settled

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        answer = self._look(jobs)
        observed = {}
        for job in jobs:
            if why := answer.away.get(job.job_id):
                observed[job.job_id] = Observation(None, unreachable=why)
                continue
            verdict = judge(job.job_id, _key(job), answer)
            files = answer.files.get(job.job_id)
            again = self._try_again(job, verdict, files) if files else None
            observed[job.job_id] = again or _observation(verdict)
        # What explains a failure is read before it goes.
        over = (JobState.COMPLETE, JobState.CANCELED)
        self._clean([job for job in jobs if observed[job.job_id].state in over])
        return observed

    def _try_again(self, job: JobRef, verdict: Verdict, files: JobFiles) -> Observation | None:
        """Submit a job again whose end was not its own fault; None where it was."""
        analysis = None
        if wants_explanation(verdict):
            analysis = explain(self._evidence(job, verdict))
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
        answer = _only(
            self.transport.run(
                "resubmit",
                {
                    "job_id": job.job_id,
                    "job_dir": _layout(job).job_dir,
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
        said = answer.text.strip()
        if answer.name == "submitted":
            again = f"submitted again as {answer.words} after {why}; {budget}"
        elif answer.name in ("busy", "doubtful"):
            again = f"being submitted again after {why}; {budget}" + (said and f" ({said})")
        else:
            ended = _observation(verdict)
            told = f"Slurm refuses another attempt: {said}" if said else "unwanted since: let be"
            return ended._replace(message=f"{ended.message}; {told}")
        return Observation(JobState.PENDING, again)

    def _look(self, jobs: Sequence[JobRef]) -> Answer:
        rows = [
            (job.job_id, layout.job_dir, layout.results, _key(job) or "-", job.native["cluster"])
            for job in jobs
            for layout in [_layout(job)]
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
            rows = [(job.job_id, _layout(job).job_dir) for job in jobs]
            self.transport.run("clean", payload=table(rows))

    def cancel(self, job: JobRef) -> None:
        about = {
            "job_dir": _layout(job).job_dir,
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
                "job_dir": _layout(job).job_dir,
                "name": job.identity.name,
                "wanted": wanted,
                "tail": "" if tail is None or known else str(tail),
                "limit": str(limit),
            },
        )
        labelled = _nodes(job) > 1
        return logs.chunk_of(sections, known, tail=tail, labelled=labelled, flush=flush)

    def evidence(self, job: JobRef) -> Evidence:
        verdict = judge(job.job_id, _key(job), self._look_at(job))
        if verdict.state is JobState.CANCELED:
            return Evidence(reason=verdict.reason)  # no program's doing: its log says nothing
        found = self._evidence(job, verdict)
        self._clean([job])
        return found

    def _evidence(self, job: JobRef, verdict: Verdict) -> Evidence:
        layout = _layout(job)
        sections = self.transport.run(
            "evidence",
            {
                "job_dir": layout.job_dir,
                "job_id": job.job_id,
                "token": job.identity.token,
                "name": job.identity.name,
            },
        )
        said = {section.name: section.text for section in sections}
        labelled = _nodes(job) > 1
        tail = "\n".join(
            logs.relabel(said[stream].strip("\n"), labelled=labelled and stream != "batch")
            for stream in ("batch", "out", "err")
            if said.get(stream, "").strip()
        )
        secrets = [*_secrets_in(said.get("env", "")), *settings.known_secrets()]
        records = tuple(self.result_records(job)) if labelled else ()
        return Evidence(
            exit_code=verdict.exit_code,
            reason=redact(verdict.reason, secrets),
            log_tail=redact(tail, secrets),
            replicas=_ranks(records, _nodes(job)) if records else (),
        )

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        files = self._look_at(job).files.get(job.job_id)
        return sorted(files.records, key=lambda record: record.rank) if files else []

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        [answer] = self.transport.run("files", {"path": _layout(job).results})
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
        layout = _layout(job)
        [answer] = self.transport.run(
            "delete", {"job_dir": layout.job_dir, "results": layout.results}
        )
        return answer.name == "done"

    def check_path(self, path: str) -> bool:
        return not self._missing_paths([planning.cluster_path("check_path", path)])

    def list_path(self, path: str) -> list[str]:
        answer = _only(
            self.transport.run("list", {"path": planning.cluster_path("list_path", path)})
        )
        if answer.name == "missing":
            return []
        if answer.name == "file":
            return [path.rstrip("/").rpartition("/")[2]]
        return sorted(name.decode("utf-8", "replace") for name in answer.data.split(b"\0")[:-1])

    # ------------------------------------------------------------------ inner workings

    def facts(self) -> Facts:
        """What the cluster has; asked again every ten minutes."""
        now = time.monotonic()
        if self._facts is None or now - self._facts[0] > _FACTS_SECONDS:
            mounts = "\n".join(mount.source for mount in self.cluster.mounts)
            asked = {"base": self.cluster.base, "mounts": mounts}
            found = parse_facts(self.transport.run("probe", asked))
            self._facts = (now, found)
        return self._facts[1]

    def _check_paths(
        self, request: JobRequest, staged: planning.Staged, data: planning.Data
    ) -> None:
        """Refuse a job whose data, mounts or image file are not there."""
        asked = dict(data.paths)
        wanted = {path: where for where, path in asked.items()}
        wanted |= {mount.source: "mounts" for mount in request.options["mounts"]}
        if staged.image and staged.image.is_path:
            wanted[staged.image.path] = "image"
        missing = self._missing_paths(list(wanted)) if wanted else []
        if missing:
            told = "; ".join(f"{wanted[path]}: {path} is not there" for path in missing)
            raise ValidationError(
                f"{told}, seen from the login host: correct the path, or stage the data on the "
                "cluster's shared storage first"
            )

    def _missing_paths(self, paths: Sequence[str]) -> list[str]:
        sections = self.transport.run("paths", payload="".join(f"{p}\n" for p in paths).encode())
        return [section.words for section in sections if section.name == "missing"]

    def _native(
        self, intent: Mapping[str, Any], layout: JobLayout, slurm_id: str
    ) -> dict[str, Any]:
        return {**intent, "slurm_job_id": slurm_id, "job_dir": layout.job_dir}


def _queued(slurm_id: str, about_image: str) -> str:
    return f"queued as {slurm_id}; {about_image}" if about_image else f"queued as {slurm_id}"


def _layout(job: JobRef) -> JobLayout:
    return JobLayout(str(job.native["base"]), job.job_id)


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


def _ranks(records: Sequence[ResultRecord], nodes: int) -> tuple[ReplicaEvidence, ...]:
    """Every rank: by its record, or as one that Slurm stopped before it could leave any."""
    left = {
        record.rank: ReplicaEvidence(record.rank, record.host, record.exit_code, record.ended_at)
        for record in records
    }
    stopped = "stopped by Slurm together with the others"
    return tuple(left.get(n) or ReplicaEvidence(n, reason=stopped) for n in range(nodes))


def _secrets_in(environment: str) -> list[Secret]:
    """The values of a staged environment, for redaction."""
    values = []
    for word in shlex.split(environment):
        _, equals, value = word.partition("=")
        if equals and len(value) >= 6:
            values.append(Secret(value))
    return values


def _only(sections: Sequence[Section]) -> Section:
    if len(sections) != 1:
        raise BackendUnreachableError("the login host gave no answer that makes sense")
    return sections[0]


def _reached(sections: list[Section]) -> list[Section]:
    """The sections, unless Slurm itself could not be asked."""
    for section in sections:
        if section.name == "unreachable":
            raise BackendUnreachableError(f"Slurm does not answer: {section.words}")
    return sections
