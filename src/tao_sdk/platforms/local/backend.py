"""The local platform: processes of this machine under supervisors of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, UnsupportedError, ValidationError
from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import (
    Backend,
    JobIdentity,
    JobRef,
    LogChunk,
    LogSource,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.common.log_files import read_chunk
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.local.client import LocalTransport
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.platforms.local.observe import (
    Observer,
    local_job,
    reaching,
    snapshot,
    why_elsewhere,
)
from tao_sdk.platforms.local.plan import plan_command
from tao_sdk.platforms.local.status import interpret
from tao_sdk.platforms.local.submit import make_root, settle
from tao_sdk.platforms.request import JobRequest
from tao_sdk.result_record import ResultRecord, read_records

if TYPE_CHECKING:
    from tao_sdk.platforms.evidence import RawEvidence


class LocalBackend(Backend):
    """Runs jobs as processes of this machine."""

    platform = "local"
    poll_seconds = 0.25
    transport: LocalTransport

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transport = LocalTransport()
        self._observer = Observer()

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        return plan_command(self.platform, self.root, request, identity)

    def close(self) -> None:
        """End the process that starts supervisors; they and their jobs go on."""
        self.transport.close()

    def prepare(self) -> None:
        make_root(self.root)
        self.transport.make_ready()

    def submit(self, plan: Plan) -> Submission:
        pid = self.transport.start(*plan.payload)
        return self._submission(plan.identity, plan.intent, f"supervisor {pid}")

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        self.transport.calls.record("settle")
        settled: dict[str, Submission | None] = {}
        for job in jobs:
            with contextlib.suppress(BackendUnreachableError):
                claimed = settle(local_job(job))
                settled[job.job_id] = (
                    self._submission(job.identity, job.native, "adopted") if claimed else None
                )
        return settled

    def _submission(
        self, identity: JobIdentity, intent: Mapping[str, Any], message: str
    ) -> Submission:
        # The first job of a root was planned before the root had a name.
        root = intent.get("root") or JobFolder(Path(intent["folder"])).root_name
        return Submission(identity.name, {**intent, "root": root}, message)

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        self.transport.calls.record("observe")
        return {job.job_id: self._observer.observe(job) for job in jobs}

    def elsewhere(self, jobs: Sequence[JobRef]) -> Mapping[str, str]:
        self.transport.calls.record("elsewhere")
        reasons = {job.job_id: why_elsewhere(local_job(job)) for job in jobs}
        return {job_id: why for job_id, why in reasons.items() if why}

    def cancel(self, job: JobRef) -> None:
        self.transport.cancel(local_job(job), settings.get_seconds("TAO_GRACE_SECONDS"))

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        return [
            PolledLog(partial(self._read_log, path), rank=rank, longest_pause=self.poll_seconds)
            for rank, path in enumerate(local_job(job).log_files)
        ]

    def _read_log(self, path: Path, **wanted: Any) -> LogChunk:
        self.transport.calls.record("log")
        with reaching(self.root):
            return read_chunk(path, **wanted)

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        from tao_sdk.platforms.evidence import ask_each
        from tao_sdk.platforms.local.evidence import evidence_of  # only failures need it

        self.transport.calls.record("evidence")
        return ask_each(jobs, lambda job: evidence_of(local_job(job)))

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        self.transport.calls.record("records")
        with reaching(self.root):
            return read_records(Path(job.results_dir), job.job_id, int(job.native["nodes"]))

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        self.transport.calls.record("replicas")
        seen = snapshot(local_job(job))
        observation = interpret(seen)
        pending = observation.state is JobState.PENDING
        issue = {"reason": "Waiting", "message": observation.message} if pending else None
        ranks = (seen.state or {}).get("ranks") or [{"rank": 0}]
        return [
            {
                "name": f"{job.identity.name}-{rank['rank']}",
                "status": {
                    "node": {"name": "localhost", "node_group_id": ""},
                    "phase": str(observation.state or JobState.UNKNOWN),
                    "readiness_issue": issue,
                    "gpus": rank.get("gpus", []),
                    "exit_code": rank.get("exit_code"),
                },
            }
            for rank in ranks
        ]

    # ------------------------------------------------------------------ paths

    def delete_artifacts(self, job: JobRef) -> bool:
        results = Path(job.results_dir)
        if results.name != job.job_id:
            raise ValidationError(f"{results} is not the results folder of job {job.job_id}")
        self.transport.remove(local_job(job))
        return True

    def check_path(self, path: str) -> bool:
        self.transport.calls.record("check_path")
        with reaching(self.root):
            return local_path(path).exists()

    def list_path(self, path: str) -> list[str]:
        self.transport.calls.record("list_path")
        place = local_path(path)
        with reaching(self.root):
            if not place.exists():
                raise ValidationError(f"{path}: there is no such path on this machine")
            if not place.is_dir():
                return [place.name]
            return sorted(entry.name for entry in place.iterdir())


def local_path(path: str) -> Path:
    """A path or `file://` address of this machine; anything else is refused with the reason."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return settings.expanded(path)
    if scheme == "file":
        return Path("/" + rest.lstrip("/"))
    raise UnsupportedError(f"{path}: neither a path of this machine, file:// nor a store we know")
