"""The thin transport: folders, sockets and signals. Every round trip is counted."""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import time
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import BackendUnreachableError, CapacityError, SubmissionRejectedError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.local.job_files import JobFolder, LocalJob
from tao_sdk.platforms.local.observe import reaching, sessions_of
from tao_sdk.platforms.local.orders import Orders, StagedFiles
from tao_sdk.platforms.local.process_groups import end_all
from tao_sdk.platforms.local.status import elsewhere
from tao_sdk.platforms.local.submit import remove_tree, stage, unstage
from tao_sdk.process_identity import Fate, ProcessIdentity, signal_if

if TYPE_CHECKING:
    from tao_sdk.platforms.local.spawner import Spawner

_KILL_SECONDS = 0.05


class LocalTransport:
    """Reaches jobs by their folders, wherever those are."""

    def __init__(self) -> None:
        self.calls = CallLog()

    @functools.cached_property
    def _spawner(self) -> Spawner:
        # Loaded by the first job: a client that only looks needs neither it nor subprocess.
        from tao_sdk.platforms.local.spawner import Spawner

        return Spawner()

    def make_ready(self) -> None:
        """Start the spawner while its first job is still being written down."""
        try:
            self._spawner.make_ready()
        except OSError as error:
            raise SubmissionRejectedError(f"no process can be started here: {error}") from error

    def start(self, orders: Orders, staged: StagedFiles) -> int:
        """Start a supervisor and wait until it has claimed the job; returns its process id."""
        self.calls.record("start")
        folder = orders.job_folder
        stage(folder, staged)
        with reaching(folder.root):
            answer = self._spawner.start(orders.dumps())
            if not answer:
                why = self._last_words(folder)
                raise SubmissionRejectedError(f"the supervisor did not start: {why}")
        reply: dict[str, Any] = json.loads(answer)
        if "claimed" in reply:
            return int(reply["claimed"])
        if "refused" in reply:
            unstage(folder, staged)
            raise CapacityError(f"{reply['refused']}; when_busy='wait' queues the job")
        raise SubmissionRejectedError(str(reply["rejected"]))

    def _last_words(self, folder: JobFolder) -> str:
        log = folder.supervisor_log
        printed = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        lines = (printed.strip() or self._spawner.last_words()).splitlines()
        return lines[-1] if lines else "it was killed without a message"

    def close(self) -> None:
        """End the spawner. Jobs go on."""
        if "_spawner" in self.__dict__:
            self._spawner.close()

    def cancel(self, job: LocalJob, grace_seconds: float) -> None:
        """Ask the supervisor to stop the job; without a supervisor, stop it from here."""
        self.calls.record("cancel")
        with reaching(job.folder.root):
            claim = job.folder.read_claim() or {}
            supervisor = ProcessIdentity.parse(claim.get("supervisor", ""))
            if supervisor is not None and supervisor.fate is Fate.UNKNOWN:
                raise BackendUnreachableError(elsewhere(supervisor.host))
            if supervisor is not None and signal_if(
                lambda: supervisor.fate is Fate.ALIVE, supervisor.pid, signal.SIGTERM
            ):
                return
            sessions = sessions_of(job)
        end_all(sessions, grace_seconds, lambda: time.sleep(_KILL_SECONDS))

    def remove(self, job: LocalJob) -> None:
        """Remove a job's folders for good; missing ones are fine."""
        self.calls.record("remove")
        with reaching(job.folder.root):
            for path in (job.results, job.folder.path):
                with contextlib.suppress(FileNotFoundError):
                    remove_tree(path)  # refuses a link
