"""Raw evidence of ended jobs, read for many of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tao_sdk.failures import Evidence, ReplicaEvidence
from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.credentials import values_in
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.remote.framing import Section, table
from tao_sdk.platforms.slurm import logs
from tao_sdk.platforms.slurm.client import SshTransport
from tao_sdk.platforms.slurm.status import Verdict
from tao_sdk.result_record import ResultRecord

# Each brings the ends of three files: some hundred kilobytes at most.
_AT_ONCE = 50


# Lines of Slurm about ranks that it stops because another one failed; not a cancellation.
_SLURMS_OWN = re.compile(r"(?m)^.*(?:slurmstepd\S*: error: \*\*\* STEP|srun: error: ).*\n?")


class Case(NamedTuple):
    """A job that has ended, and what is known about its end."""

    job: JobRef
    folder: str
    verdict: Verdict
    nodes: int
    records: Sequence[ResultRecord]


def gather_evidence(transport: SshTransport, cases: Sequence[Case]) -> dict[str, RawEvidence]:
    """The evidence of many jobs, by their id."""
    found: dict[str, RawEvidence] = {}
    asked = []
    for case in cases:
        if case.verdict.state is JobState.CANCELED:
            # The program did not cause it: its log explains nothing.
            found[case.job.job_id] = RawEvidence(Evidence(reason=case.verdict.reason))
        else:
            asked.append(case)
    for start in range(0, len(asked), _AT_ONCE):
        some = asked[start : start + _AT_ONCE]
        rows = [(c.job.job_id, c.folder, c.job.identity.token, c.job.identity.name) for c in some]
        answers = _by_job(transport.run("evidence", payload=table(rows)))
        found |= {case.job.job_id: _evidence(case, answers[case.job.job_id]) for case in some}
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


def _evidence(case: Case, texts: Mapping[str, str]) -> RawEvidence:
    labelled = case.nodes > 1
    tail = "\n".join(
        logs.relabel(texts[stream].strip("\n"), labelled=labelled and stream != "batch")
        for stream in ("batch", "out", "err")
        if texts.get(stream, "").strip()
    )
    if any(record.exit_code for record in case.records):
        tail = _SLURMS_OWN.sub("", tail)
    found = Evidence(
        exit_code=case.verdict.exit_code,
        reason=case.verdict.reason,
        log_tail=tail,
        replicas=_ranks(case.records, case.nodes) if labelled and case.records else (),
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
