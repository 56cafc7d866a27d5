"""A whole platform: every job is a detached shell process with a folder of its own.

One node, no GPUs, no supervisor. A job runs while one of its processes holds the lock they inherit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, UnsupportedError
from tao_sdk.failures import Evidence
from tao_sdk.models import JobState
from tao_sdk.platforms import backend as seam
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.common.log_files import read_chunk
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.logs import LogStream
from tao_sdk.platforms.request import JobRequest, Keyword, check_text
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.result_record import ResultRecord, shim_argv
from tao_sdk.secrets import PLACEHOLDER, Secret, reveal_all, seal

# $0 is the job's folder. The outer shell leads the process group and returns at once.
_START = 'echo $$ > "$0/pid"; "$@" > "$0/job.log" 2>&1 &'


class ShellOptions(NamedTuple):
    """The keywords of `create_job` that only this platform has."""

    cwd: Annotated[str | None, Keyword("folder to run in", check_text)] = None


class ShellTransport:
    def __init__(self) -> None:
        self.calls = seam.CallLog()


class ShellBackend(seam.Backend):
    """Jobs below `<root>/jobs`, results below `<root>/results`."""

    platform = "shell"
    poll_seconds = 0.25

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transport = ShellTransport()
        self._secrets: dict[str, list[Secret]] = {}

    # -- step 1: say exactly what would happen, refuse what cannot; nothing is created

    def plan(self, request: JobRequest, identity: seam.JobIdentity) -> seam.Plan:
        if request.gpu_count or request.num_nodes > 1:
            raise UnsupportedError("the shell platform has one node and no GPUs: gpu_count=0")
        folder, results = self.root / "jobs" / identity.job_id, self.root / "results"
        visible = {"TAO_JOB_ID": identity.job_id, "TAO_RESULTS_ROOT": str(results)}
        visible["TAO_GROUP_SIGNALS"] = "1"  # `cancel` signals the whole group
        secret = {**seal(job_credentials(request.env)), **request.env}
        env = {**settings.process_environment(), **reveal_all(secret), **visible}
        shown = [f"{name}={value}" for name, value in visible.items()]
        shown += [f"{name}={PLACEHOLDER}" for name in sorted(secret)]
        argv = shim_argv(["/bin/sh", "-c", request.shell_command])
        return seam.Plan(
            identity=identity,
            platform=self.platform,
            request=request,
            artefacts=(
                seam.Artefact("command", shlex.join(argv)),
                seam.Artefact("environment", "\n".join(shown)),
            ),
            intent={"folder": str(folder), "has_secrets": bool(secret)},
            results_dir=str(results / identity.job_id),
            local_results_dir=str(results / identity.job_id),
            payload=(argv, env, list(secret.values())),
        )

    # -- step 2: start it, and find out what became of an interrupted start

    def prepare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    def submit(self, plan: seam.Plan) -> seam.Submission:
        self.transport.calls.record("start")
        argv, env, self._secrets[plan.job_id] = plan.payload
        folder = Path(plan.intent["folder"])
        folder.mkdir(parents=True, mode=0o700)
        Path(plan.results_dir).mkdir(parents=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(
                ["/bin/sh", "-c", _START, str(folder), *argv],
                env=env,
                cwd=plan.request.options.cwd,
                stdin=subprocess.DEVNULL,
                pass_fds=(lock,),
                start_new_session=True,
                check=True,
            )
        finally:
            os.close(lock)
        return seam.Submission(plan.identity.name, plan.intent)

    def settle(self, jobs: Sequence[seam.JobRef]) -> Mapping[str, seam.Submission | None]:
        # The submitter is gone: once the lock is free, nothing can start any more, and without a
        # process id nothing ever ran. The lock comes first: a job that ends has left its id.
        self.transport.calls.record("settle")
        return {
            job.job_id: seam.Submission(job.identity.name, job.native)
            if _lives(_folder(job)) or (_folder(job) / "pid").exists()
            else None
            for job in jobs
        }

    # -- step 3: watch all jobs in one round trip, stop one

    def observe(self, jobs: Sequence[seam.JobRef]) -> Mapping[str, seam.Observation]:
        self.transport.calls.record("observe")
        return {job.job_id: self._observe(job) for job in jobs}

    def _observe(self, job: seam.JobRef) -> seam.Observation:
        folder = _folder(job)
        if not folder.exists():
            return seam.MISSING
        # The lock first: the shim writes the record before it releases the lock.
        lives, records = _lives(folder), self.result_records(job)
        if records:
            end = records[0]
            state = JobState.ERROR if end.exit_code else JobState.COMPLETE
            return seam.Observation(
                JobState.CANCELED if job.cancel_requested else state,
                f"ended with exit code {end.exit_code}",
                end.exit_code,
                end.started_at,
                end.ended_at,
                cancel_aware=True,
            )
        if lives:
            began = (folder / "job.log").exists()
            return seam.Observation(JobState.RUNNING if began else JobState.PENDING)
        # Above the seam, an error after a cancellation counts as cancelled.
        return seam.Observation(JobState.ERROR, "its processes were killed and left no record")

    def cancel(self, job: seam.JobRef) -> None:
        # These jobs have no supervisor, so this process waits out the grace period.
        self.transport.calls.record("cancel")
        folder = _folder(job)
        if not _lives(folder):
            return
        _signal(folder, signal.SIGTERM)
        deadline = time.monotonic() + settings.get_seconds("TAO_GRACE_SECONDS")
        while _lives(folder):
            if time.monotonic() >= deadline:
                _signal(folder, signal.SIGKILL)
                return
            time.sleep(0.05)

    # -- step 4: logs by cursor, evidence, results

    def log_sources(self, job: seam.JobRef) -> Sequence[seam.LogSource]:
        return [PolledLog(lambda **wanted: self._read_log(job, **wanted))]

    def _read_log(self, job: seam.JobRef, **wanted: Any) -> seam.LogChunk:
        self.transport.calls.record("log")
        return read_chunk(_folder(job) / "job.log", **wanted)

    def evidence(self, jobs: Sequence[seam.JobRef]) -> Mapping[str, RawEvidence]:
        return {job.job_id: self._evidence(job) for job in jobs}

    def _evidence(self, job: seam.JobRef) -> RawEvidence:
        if not _folder(job).exists():
            return RawEvidence(Evidence())
        codes = [record.exit_code for record in self.result_records(job)]
        found = Evidence(
            exit_code=codes[0] if codes else None,
            log_tail=self._quotable_log(job),
            killed_from_outside=not codes,
        )
        return RawEvidence(found, self._secrets.get(job.job_id, ()))

    def _quotable_log(self, job: seam.JobRef) -> str:
        # What is quoted is stored. A job may print its secrets, and only its submitter knows them.
        if job.native["has_secrets"] and job.job_id not in self._secrets:
            return ""
        return "\n".join(LogStream(self.log_sources(job), tail=50))

    def result_records(self, job: seam.JobRef) -> list[ResultRecord]:
        path = Path(job.results_dir) / "tao_result.json"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        record = ResultRecord.parse(text, job.job_id)
        return [record] if record else []

    def delete_artifacts(self, job: seam.JobRef) -> bool:
        for path in (_folder(job), Path(job.results_dir)):
            if path.exists():
                shutil.rmtree(path)
        return True


class ShellSDK(PlatformSDK):
    """What users import. Constructing it opens nothing."""

    platform = "shell"
    options_type = ShellOptions

    def __init__(
        self, state_file: str | Path | None = None, root: str | Path = "~/tao-shell"
    ) -> None:
        super().__init__(state_file=state_file)
        self._root = Path(root).expanduser()

    def _make_backend(self) -> ShellBackend:
        return ShellBackend(self._root)


def _folder(job: seam.JobRef) -> Path:
    folder = Path(job.native["folder"])
    if not folder.parents[1].is_dir():
        raise BackendUnreachableError(f"{folder.parents[1]} is not there (is its disk mounted?)")
    return folder


def _lives(folder: Path) -> bool:
    """Whether any process of the job holds its lock."""
    if not (folder / "lock").exists():
        return False
    descriptor = os.open(folder / "lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _signal(folder: Path, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int((folder / "pid").read_text(encoding="ascii")), number)
