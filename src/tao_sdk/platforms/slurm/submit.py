"""Handing jobs to Slurm: one, many as an array, once more, and what became of a lost submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError
from tao_sdk.platforms.backend import Attempt, JobRef, Plan
from tao_sdk.platforms.remote.framing import Section, table
from tao_sdk.platforms.slurm import arrays
from tao_sdk.platforms.slurm.client import NotReachedError, SshTransport, only, reached
from tao_sdk.platforms.slurm.job_folder import JobFolder, folder_of
from tao_sdk.platforms.slurm.plan import Staged


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


def submit_array(transport: SshTransport, base: str, array: arrays.Array) -> dict[str, str]:
    """Submit many jobs as one array; Slurm's ids by job. None if Slurm refuses the array."""
    answer = only(
        transport.run(
            "submit_array",
            {"base": base, "folder": f"{base}/jobs/{array.folder}", "name": array.name},
            arrays.archive(array, base),
            repeatable=False,
        )
    )
    if answer.name == "doubtful":
        raise BackendUnreachableError(f"sbatch: {answer.text.strip()}")
    if answer.name != "submitted":
        return {}  # the reason comes with each single submission that follows
    return {plan.job_id: f"{answer.words}_{index}" for index, plan in enumerate(array.plans)}


def settle(transport: SshTransport, jobs: Sequence[JobRef]) -> Mapping[str, str | None]:
    """Slurm's ids of the submissions that it has; None for those that will never run."""
    rows = [
        (job.job_id, folder_of(job).job_dir, job.identity.token, job.native["cluster"])
        for job in jobs
    ]
    settled: dict[str, str | None] = {}
    for section in reached(transport.run("settle", payload=table(rows))):
        job_id, _, slurm_id = section.words.partition(" ")
        if section.name == "none":
            settled[job_id] = None
        elif section.name == "adopted":
            settled[job_id] = slurm_id
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


def native_of(intent: Mapping[str, object], folder: JobFolder, slurm_id: str) -> dict[str, object]:
    """What is stored to find a submitted job again."""
    return {**intent, "slurm_job_id": slurm_id, "job_dir": folder.job_dir}
