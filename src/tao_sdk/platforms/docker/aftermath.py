"""What is known about a job that has ended, and what is left of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tao_sdk import settings
from tao_sdk.failures import Evidence
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.launch import job_name, queued_name
from tao_sdk.platforms.docker.logs import LogReader
from tao_sdk.platforms.docker.placeholders import remove
from tao_sdk.platforms.docker.states import Container, Outcome
from tao_sdk.platforms.docker.transport import DaemonError, DockerTransport
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.result_record import ResultRecord, record_name
from tao_sdk.secrets import Secret, redact

_EVIDENCE_LINES = 200
_LARGEST_RECORD = 64 * 1024


class Aftermath:
    """Ended jobs of one daemon, their containers there or not."""

    def __init__(
        self,
        transport: DockerTransport,
        host: DockerHost,
        logs: LogReader,
        kept: OutcomeFiles[Outcome],
    ) -> None:
        self._transport = transport
        self._host = host
        self._logs = logs
        self._kept = kept

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
        """What the job itself left beside its results."""
        source, name = job.native["results"], record_name(0)
        if source:
            data = self._host.read_file(source, f"{job.job_id}/{name}", _LARGEST_RECORD)
            record = ResultRecord.parse((data or b"").decode("utf-8", "replace"), job.job_id)
            return [record] if record else []
        return []

    def keep_and_remove(self, job: JobRef, container: Container) -> str:
        """DOCKER_AUTO_REMOVE: the container goes once everything about it is on our disk.

        Returns why it has to stay, "" when it is gone.
        """
        try:
            if self._kept.outcome(job.job_id) is None:
                outcome, hide = self._ask_daemon(job, container.id)
                # The values to hide go with the container.
                tail = redact(outcome.log_tail, [*hide, *settings.known_secrets()])
                outcome = replace(outcome, log_tail=tail)
                self._kept.keep(job.job_id, outcome, self._whole_log(container.id))
        except DaemonError as error:
            if _is_going(error):
                return ""  # another watcher has kept it all, or somebody else removes it
            return f"it cannot be kept: {error}"
        except OSError as error:
            return f"it cannot be kept on this machine: {error}"
        remove(self._transport, container.id)
        return ""

    def delete(self, job: JobRef) -> None:
        """Remove results, containers, and what we kept."""
        source = job.native["results"]
        if source:
            self._host.remove_folder(source, job.job_id, job.native["image"])
        remove(self._transport, queued_name(job.job_id))
        remove(self._transport, job_name(job.job_id))
        self._kept.remove(job.job_id)

    def _outcome(self, job: JobRef) -> tuple[Outcome | None, Sequence[Secret]]:
        try:
            return self._ask_daemon(job, job_name(job.job_id))
        except DaemonError as error:
            if not _is_going(error):
                raise
            return self._kept.outcome(job.job_id), ()

    def _ask_daemon(self, job: JobRef, container: str) -> tuple[Outcome, list[Secret]]:
        found = self._transport.get(f"/containers/{container}/json")
        env = config.environment_of(found["Config"])
        secrets = [Secret(env[name]) for name in job.native["secret_names"] if name in env]
        state = found["State"]
        started, ended = container_time(state["StartedAt"]), container_time(state["FinishedAt"])
        outcome = Outcome(
            exit_code=int(state["ExitCode"]),
            # The daemon notes a start when it has heard of it, which may be after the end.
            started_at=min(started, ended),
            ended_at=ended,
            oom_killed=bool(state["OOMKilled"]),
            error=str(state["Error"]),
            log_tail=self._log_tail(container),
        )
        return outcome, secrets

    def _log_tail(self, container: str) -> str:
        try:
            return self._logs.last(container, _EVIDENCE_LINES)
        except DaemonError as error:
            if _is_going(error):
                raise
            return ""  # a log driver that keeps nothing, a damaged file: explained without

    def _whole_log(self, container: str) -> Iterator[bytes]:
        try:
            yield from self._logs.copy(container)
        except DaemonError as error:
            if not _keeps_no_log(error):
                raise


def _is_going(error: DaemonError) -> bool:
    """Is the container gone, or being removed?"""
    return error.missing or error.conflict


def _keeps_no_log(error: DaemonError) -> bool:
    """Is there no log to be lost, because the container's log driver keeps none?"""
    return "does not support reading" in str(error)
