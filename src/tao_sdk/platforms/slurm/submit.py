"""Handing jobs to Slurm: one, many as an array, once more, and what became of a lost submission."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence

from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError
from tao_sdk.platforms.backend import Attempt, JobIdentity, JobRef, Plan, Submission
from tao_sdk.platforms.common.archives import Member, pack
from tao_sdk.platforms.remote.framing import Section, table
from tao_sdk.platforms.slurm.batch_script import array_script
from tao_sdk.platforms.slurm.client import NotReachedError, SshTransport, only, reached
from tao_sdk.platforms.slurm.job_folder import JobFolder, folder_of
from tao_sdk.platforms.slurm.plan import Staged

# Slurm's own default limit is 1001 tasks.
_MAX_TASKS = 1000
_OF_ONE_JOB = ("--job-name=", "--output=", "--error=", "--chdir=")


def submit(transport: SshTransport, plan: Plan) -> str:
    """Submit one job; Slurm's id of it."""
    staged: Staged = plan.payload
    folder = staged.job_folder
    try:
        sections = transport.run(
            "submit",
            {
                "base": folder.base,
                "job_id": plan.job_id,
                "job_dir": folder.job_dir,
                "token": plan.identity.token,
                "name": plan.identity.name,
            },
            staged.archive(),
            repeatable=False,
        )
    except NotReachedError as error:
        raise SubmissionRejectedError(f"the login host was not reached: {error}") from error
    answer = only(sections)
    if answer.name == "submitted":
        return answer.words
    if answer.name == "withdrawn":
        raise SubmissionRejectedError("another process declared this job never submitted")
    if answer.name == "unwritable":
        raise SubmissionRejectedError(
            f"{folder.base} cannot be used: {answer.words}; set SLURM_BASE_RESULTS_DIR to a "
            "shared folder of yours"
        )
    if answer.name == "doubtful":
        raise BackendUnreachableError(f"sbatch: {answer.text.strip()}")
    raise SubmissionRejectedError(f"Slurm refuses the job: {answer.text.strip()}")


def alike(plans: Sequence[Plan]) -> list[list[Plan]]:
    """Plans with equal directives, for arrays; a plan that is like no other is left out."""
    found: dict[tuple[str, ...], list[Plan]] = {}
    for plan in plans:
        found.setdefault(_shared_directives(plan), []).append(plan)
    return [
        some[start : start + _MAX_TASKS]
        for some in found.values()
        if len(some) > 1
        for start in range(0, len(some), _MAX_TASKS)
    ]


def submit_array(transport: SshTransport, base: str, plans: Sequence[Plan]) -> dict[str, str]:
    """Submit plans that are alike as one array; Slurm's ids by job. Empty if Slurm refuses it."""
    token = secrets.token_hex(8)
    name, folder = f"tao-array-{token}", f".arrays/{token}"
    answer = only(
        transport.run(
            "submit_array",
            {"base": base, "folder": f"{base}/jobs/{folder}", "name": name},
            pack(_array_files(plans, f"{base}/jobs", folder, name)),
            repeatable=False,
        )
    )
    if answer.name == "doubtful":
        raise BackendUnreachableError(f"sbatch: {answer.text.strip()}")
    if answer.name != "submitted":
        return {}  # the reason comes with each single submission that follows
    return {plan.job_id: f"{answer.words}_{index}" for index, plan in enumerate(plans)}


def _array_files(plans: Sequence[Plan], jobs: str, folder: str, name: str) -> Iterable[Member]:
    """The files of all these jobs and of their array, to be unpacked in `jobs`."""
    directives = [
        *_shared_directives(plans[0]),
        f"--job-name={name}",
        f"--output={jobs}/{folder}/logs/batch-%A_%a.out",
        f"--error={jobs}/{folder}/logs/batch-%A_%a.err",
        f"--chdir={jobs}/{folder}",
        f"--array=0-{len(plans) - 1}",
    ]
    yield from (Member(path) for path in (".arrays", folder, f"{folder}/logs"))
    yield Member(f"{folder}/list", "".join(f"{jobs}/{plan.job_id}\n" for plan in plans))
    yield Member(f"{folder}/array.sbatch", array_script(directives, f"{jobs}/{folder}"))
    for index, plan in enumerate(plans):
        yield Member(plan.job_id)
        yield from plan.payload.members(f"{plan.job_id}/")
        yield Member(f"{plan.job_id}/array", f"{name} {index}\n")


def _shared_directives(plan: Plan) -> tuple[str, ...]:
    staged: Staged = plan.payload
    return tuple(line for line in staged.directives if not line.startswith(_OF_ONE_JOB))


def settle(transport: SshTransport, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
    """The submissions that Slurm has; None for those that will never run."""
    rows = [
        (job.job_id, folder_of(job).job_dir, job.identity.token, job.native["cluster"])
        for job in jobs
    ]
    by_id = {job.job_id: job for job in jobs}
    settled: dict[str, Submission | None] = {}
    for section in reached(transport.run("settle", payload=table(rows))):
        job_id, _, slurm_id = section.words.partition(" ")
        if section.name == "none":
            settled[job_id] = None
        elif section.name == "adopted":
            job = by_id[job_id]
            settled[job_id] = submission(job.identity, job.native, slurm_id)
    return settled


def resubmit(transport: SshTransport, job: JobRef, attempt: Attempt, pause_seconds: int) -> Section:
    """Submit a job again; what `resubmit.sh` answers."""
    return only(
        transport.run(
            "resubmit",
            {
                "job_id": job.job_id,
                "job_dir": folder_of(job).job_dir,
                "token": job.identity.token,
                "name": job.identity.name,
                "number": str(attempt.number),
                "cause": attempt.cause,
                "pause": str(pause_seconds),
                "exclude": ",".join(attempt.excluded),
            },
            repeatable=False,
        )
    )


def submission(
    identity: JobIdentity, intent: Mapping[str, object], slurm_id: str, note: str = ""
) -> Submission:
    """What is stored to find a submitted job again, and its first message."""
    folder = JobFolder(str(intent["base"]), identity.job_id)
    native = {**intent, "slurm_job_id": slurm_id, "job_dir": folder.job_dir}
    queued = f"Queued as Slurm job {slurm_id}"
    return Submission(identity.name, native, f"{queued}; {note}" if note else queued)
