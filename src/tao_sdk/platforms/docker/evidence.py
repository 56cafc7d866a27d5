"""What explains the end of a job, whether or not its container still exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tao_sdk.failures import Evidence
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import job_name
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.logs import ContainerLog
from tao_sdk.platforms.docker.status import Outcome
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.result_record import MAX_RECORD_BYTES, ResultRecord, record_name
from tao_sdk.secrets import Secret

_EVIDENCE_LINES = 200


@dataclass(frozen=True)
class EvidenceCollector:
    """The evidence about jobs of one daemon."""

    transport: DockerClient
    host: DockerHost
    files: OutcomeFiles[Outcome]

    def evidence(self, job: JobRef) -> RawEvidence:
        """What explains the end of a job."""
        outcome, hide = self._outcome(job)
        if outcome is None:
            return RawEvidence(Evidence())
        found = Evidence(
            exit_code=outcome.exit_code,
            reason="OOMKilled" if outcome.oom_killed else outcome.error,
            log_tail=outcome.log_tail,
            never_started=outcome.exit_code is None,
            memory_sufficed=not outcome.oom_killed,
        )
        return RawEvidence(found, hide)

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        """The records that the job left beside its results.

        A record that this process cannot read (in a volume, on another machine, of another user)
        is read through a container that never runs and is removed at once.
        """
        source, name = job.native["results"], record_name(0)
        if not source:
            return []
        data = self.host.read_file(source, f"{job.job_id}/{name}", MAX_RECORD_BYTES)
        record = ResultRecord.parse((data or b"").decode("utf-8", "replace"), job.job_id)
        return [record] if record else []

    def _outcome(self, job: JobRef) -> tuple[Outcome | None, Sequence[Secret]]:
        try:
            return self.ask_daemon(job, job_name(job.job_id))
        except DaemonError as error:
            if not is_going(error):
                raise
            return self.files.outcome(job.job_id), ()

    def ask_daemon(self, job: JobRef, container: str) -> tuple[Outcome, list[Secret]]:
        """How a container ended, and the values of its environment to hide."""
        found = self.transport.api.inspect_container(container)
        env = config.environment_of(found["Config"])
        secrets = [Secret(env[name]) for name in job.native["secret_names"] if name in env]
        state = found["State"]
        started, ended = container_time(state["StartedAt"]), container_time(state["FinishedAt"])
        outcome = Outcome(
            exit_code=int(state["ExitCode"]),
            # The daemon may record the start of a short job after its end.
            started_at=min(started, ended),
            ended_at=ended,
            oom_killed=bool(state["OOMKilled"]),
            error=str(state["Error"]),
            log_tail=self._log_tail(container),
        )
        return outcome, secrets

    def _log_tail(self, container: str) -> str:
        try:
            return ContainerLog(self.transport, container).last(_EVIDENCE_LINES)
        except DaemonError as error:
            if is_going(error):
                raise
            return ""  # a log driver that keeps nothing, a damaged file: explained without


def is_going(error: DaemonError) -> bool:
    """Whether the container is gone, or being removed."""
    return error.missing or error.conflict
