"""Why a job ended: Lepton's own analysis, events, and the workers, their records and logs."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk.failures import Evidence, ReplicaEvidence
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.fingerprints import Fingerprints
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.common.log_lines import rank_prefix
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.logs import JobLogs
from tao_sdk.platforms.lepton.status import has_just_ended, issue_of, node_of, rank_of, stuck_on
from tao_sdk.platforms.rest import RefusedError
from tao_sdk.result_record import ResultRecord, first_failure
from tao_sdk.secrets import Secret

_log = logging.getLogger("tao_sdk.lepton")
_LINES = 200
_MAX_CHARACTERS = 100_000
_MAX_WAIT_SECONDS = 5.0
_MAX_EVENTS = 10
_STOPPED = "stopped by Lepton together with the others"


class EvidenceCollector:
    """Asks a workspace about a job that failed."""

    def __init__(
        self,
        client: LeptonClient,
        logs: JobLogs,
        files: JobFiles,
    ) -> None:
        self._client = client
        self._logs = logs
        self._files = files
        self._deadline = 0.0

    def remember_secrets(self, job_id: str, secrets: Sequence[Mapping[str, str]]) -> None:
        """Keep the fingerprints by which any process finds the secrets of a job in a text."""
        if naming.hides_something(one["name"] for one in secrets):
            values = [Secret(one["value"]) for one in secrets]
            made = self._fingerprints(job_id).make(values)
            self._files.write(job_id, naming.FINGERPRINTS, [made.encode()])

    def _secrets_in(self, job: JobRef, text: str) -> list[Secret] | None:
        """The secrets of the job in a text; None if its fingerprints cannot be read."""
        if not naming.hides_something(job.native["secrets"]):
            return []
        try:
            made = self._files.path(job.job_id, naming.FINGERPRINTS).read_text()
        except FileNotFoundError:
            return None
        return self._fingerprints(job.job_id).find(made, text)

    def _fingerprints(self, job_id: str) -> Fingerprints:
        return Fingerprints(self._client.access.token, job_id)

    def begin(self) -> None:
        """Start the time that all jobs of one call may wait for their records."""
        self._deadline = time.monotonic() + _MAX_WAIT_SECONDS

    def evidence(self, job: JobRef) -> RawEvidence:
        """What explains the end of a job; nothing if the server has forgotten it."""
        records = self._logs.records_of_failed(job, 0.0)
        if first_failure(records) is None and has_just_ended(self._client.job(job.native["id"])):
            records = self._logs.records_of_failed(job, self._deadline)
        replicas = self._logs.replicas(job)
        analysis = self._get(job, "failure-analysis")
        reasons = server_reasons(analysis if isinstance(analysis, Mapping) else {}, records)
        events = self._get(job, "events")
        reasons += warnings_of(events if isinstance(events, list) else [])
        if not (records or replicas or reasons):
            return RawEvidence(Evidence())
        tail = self._log_tail(job, records, replicas)
        nodes = int(job.native["nodes"])
        ranks = ranks_of(job, records, replicas, node_events(analysis), nodes)
        stuck = "" if records or tail else stuck_on(replicas)
        first = first_failure(records)
        reason = "\n".join(dict.fromkeys(filter(None, [stuck, *reasons])))
        hide = self._secrets_in(job, "\n".join([reason, tail, *(rank.reason for rank in ranks)]))
        found = Evidence(
            exit_code=first.exit_code if first else None,
            reason=reason,
            log_tail="" if hide is None else tail,
            replicas=tuple(ranks),
            killed_from_outside=not records and not stuck,
            never_started=bool(stuck),
        )
        return RawEvidence(found, hide or ())

    def stuck(self, job: JobRef) -> Evidence | None:
        """Why a pending job will never start; None while it may."""
        reason = stuck_on(self._logs.replicas(job))
        return Evidence(reason=reason, never_started=True) if reason else None

    def _log_tail(
        self,
        job: JobRef,
        records: Sequence[ResultRecord],
        replicas: Sequence[Mapping[str, Any]],
    ) -> str:
        """The end of the log of the worker that failed first; the others' are consequences."""
        nodes = int(job.native["nodes"])
        first = first_failure(records)
        rank = first.rank if first else 0
        worker = ""
        if nodes > 1:
            named = {rank_of(one, job.native["id"], n): one for n, one in enumerate(replicas)}
            if rank not in named:
                return ""
            worker = naming.id_of(named[rank])
        prefix = rank_prefix(rank, nodes)
        lines = self._logs.last_lines(job, worker, _LINES)
        while lines and sum(map(len, lines)) > _MAX_CHARACTERS:
            del lines[0]
        return "\n".join(prefix + line for line in lines)

    def _get(self, job: JobRef, what: str) -> Any:
        """An answer about the job; None if there is none, or we may not read it."""
        try:
            return self._client.get(naming.below(naming.JOBS, job.native["id"], what))
        except RefusedError as error:
            if not (error.missing or error.forbidden):
                raise
            _log.info("explained without %s of job %s: %s", what, job.job_id, error)
            return None


def node_events(analysis: Any) -> list[tuple[str, str]]:
    """Names and messages of the events of nodes in the server's analysis."""
    if not isinstance(analysis, Mapping):
        return []
    return [
        (str(one.get("node_event_name") or ""), str(one.get("message") or ""))
        for one in naming.listed(analysis, "job_failure_by_node_event")
    ]


def server_reasons(analysis: Mapping[str, Any], records: Sequence[ResultRecord]) -> list[str]:
    """The server's analysis as text.

    Its class and suggestion count only without a record: they are guesses from exit codes.
    """
    reasons = [f"{name}: {message}".strip(": ") for name, message in node_events(analysis)]
    if not records and analysis.get("err_class"):
        guess = f"{analysis['err_class']}: {analysis.get('suggestion') or ''}"
        reasons.append(f"Lepton says {guess.rstrip(': ')}")
    return reasons


def warnings_of(events: Sequence[Any]) -> list[str]:
    """The warnings among the events of a job, newest last."""
    found = []
    for event in events:
        if isinstance(event, Mapping) and event.get("type") == "Warning":
            message = event.get("message") or event.get("note") or ""
            found.append(f"{event.get('reason', '')}: {message}".strip(": "))
    return found[-_MAX_EVENTS:]


def ranks_of(
    job: JobRef,
    records: Sequence[ResultRecord],
    replicas: Sequence[Mapping[str, Any]],
    events: Sequence[tuple[str, str]],
    nodes: int,
) -> list[ReplicaEvidence]:
    """Every rank, by its record, else by its worker, else as stopped with the others."""
    workers = {rank_of(one, job.native["id"], n): one for n, one in enumerate(replicas)}
    ended = {record.rank: record for record in records}
    first = first_failure(records)
    blamed = first.rank if first else 0
    found = []
    for rank in range(nodes):
        record, worker = ended.get(rank), workers.get(rank, {})
        issue = issue_of(worker)
        name, message = events[0] if events and rank == blamed else ("", "")
        reason = message
        if not reason and record is None:
            reason = f"{issue['reason']}: {issue['message']}" if issue else ""
            reason = reason or (_STOPPED if first is not None else "")
        found.append(
            ReplicaEvidence(
                rank,
                node_of(worker) or (record.host if record else ""),
                record.exit_code if record else None,
                record.ended_at if record else "",
                reason,
                event=name,
            )
        )
    return found
