"""The states of many jobs, in one round trip. Looks, never acts."""

from __future__ import annotations

from collections.abc import Sequence

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef, Observation
from tao_sdk.platforms.remote.framing import table
from tao_sdk.platforms.slurm.client import SshTransport, reached
from tao_sdk.platforms.slurm.job_folder import folder_of, slurm_id_of
from tao_sdk.platforms.slurm.parse import Answer, parse_answer
from tao_sdk.platforms.slurm.status import Verdict, judge


def ask(transport: SshTransport, jobs: Sequence[JobRef]) -> Answer:
    """What Slurm and the jobs' folders say about these jobs."""
    rows = [
        (
            job.job_id,
            folder_of(job).job_dir,
            folder_of(job).results,
            slurm_id_of(job) or "-",
            job.native["cluster"],
        )
        for job in jobs
    ]
    return parse_answer(reached(transport.run("observe", payload=table(rows))))


def ask_one(transport: SshTransport, job: JobRef) -> Answer:
    """Like `ask`; raises if this job cannot be judged from here."""
    answer = ask(transport, [job])
    if why := answer.away.get(job.job_id):
        raise BackendUnreachableError(why)
    return answer


def verdict_of(job: JobRef, answer: Answer) -> Verdict:
    return judge(job.job_id, slurm_id_of(job), answer, cancel_requested=job.cancel_requested)


def observation(job: JobRef, answer: Answer) -> Observation:
    """What the answer says about one job."""
    if why := answer.away.get(job.job_id):
        return Observation(None, unreachable=why)
    verdict = verdict_of(job, answer)
    if verdict.state is None:
        silent = answer.silent and f"Slurm's accounting does not answer: {answer.silent}"
        return Observation(None, unreachable=silent)
    files = answer.files_of(job.job_id)
    return Observation(
        verdict.state,
        verdict.message,
        verdict.exit_code,
        started_at=verdict.started_at,
        ended_at=verdict.ended_at,
        cancel_aware=True,
        due=verdict.state.terminal and files.has_credentials,
        attempts=files.attempts,
        fault=verdict.fault,
        node=verdict.node,
    )
