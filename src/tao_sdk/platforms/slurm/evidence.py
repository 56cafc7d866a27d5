"""Raw evidence of ended jobs, read for many of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tao_sdk.failures import Evidence, ReplicaEvidence
from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.credentials import values_in
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.remote.framing import Section, table
from tao_sdk.platforms.slurm import logs
from tao_sdk.platforms.slurm.client import SshTransport
from tao_sdk.platforms.slurm.job_folder import folder_of, node_count
from tao_sdk.platforms.slurm.observe import ask, verdict_of
from tao_sdk.platforms.slurm.status import Verdict
from tao_sdk.result_record import ResultRecord

# Each brings the ends of three files: some hundred kilobytes at most.
_AT_ONCE = 50

# Lines of Slurm about ranks that it stops because another one failed; not a cancellation.
_SLURMS_OWN = re.compile(r"(?m)^.*(?:slurmstepd\S*: error: \*\*\* STEP|srun: error: ).*\n?")


def gather_evidence(transport: SshTransport, jobs: Sequence[JobRef]) -> dict[str, RawEvidence]:
    """The evidence of many jobs, by their id, less those that cannot be judged from here."""
    answer = ask(transport, jobs)
    found: dict[str, RawEvidence] = {}
    to_read: list[tuple[JobRef, Verdict]] = []
    for job in jobs:
        if job.job_id in answer.away:
            continue
        verdict = verdict_of(job, answer)
        if verdict.state is JobState.CANCELED:
            # The program did not cause it: its log explains nothing.
            found[job.job_id] = RawEvidence(Evidence(reason=verdict.reason))
        else:
            to_read.append((job, verdict))
    for start in range(0, len(to_read), _AT_ONCE):
        some = to_read[start : start + _AT_ONCE]
        rows = [
            (job.job_id, folder_of(job).job_dir, job.identity.token, job.identity.name)
            for job, _ in some
        ]
        texts = _by_job(transport.run("evidence", payload=table(rows)))
        for job, verdict in some:
            records = answer.files_of(job.job_id).records
            found[job.job_id] = _evidence(verdict, node_count(job), records, texts[job.job_id])
    return found


def _by_job(sections: Iterable[Section]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    job_id = ""
    for section in sections:
        if section.name == "job":
            job_id = section.words
            found[job_id] = {}
        else:
            found[job_id][section.name] = section.text
    return found


def _evidence(
    verdict: Verdict, nodes: int, records: Sequence[ResultRecord], texts: Mapping[str, str]
) -> RawEvidence:
    labelled = nodes > 1
    tail = "\n".join(
        logs.relabel(texts[stream].strip("\n"), labelled=labelled and stream != "batch")
        for stream in ("batch", "out", "err")
        if texts.get(stream, "").strip()
    )
    if any(record.exit_code for record in records):
        tail = _SLURMS_OWN.sub("", tail)
    found = Evidence(
        exit_code=verdict.exit_code,
        reason=verdict.reason,
        log_tail=tail,
        replicas=_ranks(records, nodes) if labelled and records else (),
    )
    return RawEvidence(found, values_in(texts.get("env", "")))


def _ranks(records: Sequence[ResultRecord], nodes: int) -> tuple[ReplicaEvidence, ...]:
    """Every rank: by its record, or as one that Slurm stopped before it could leave any."""
    left = {
        record.rank: ReplicaEvidence(record.rank, record.host, record.exit_code, record.ended_at)
        for record in records
    }
    stopped = "stopped by Slurm together with the others"
    return tuple(left.get(n) or ReplicaEvidence(n, reason=stopped) for n in range(nodes))
