"""The Docker platform: jobs as containers of one daemon."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError, UnsupportedError
from tao_sdk.platforms.backend import (
    Backend,
    JobIdentity,
    JobRef,
    LogSource,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.capabilities import PollBackoff
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.docker import config, images
from tao_sdk.platforms.docker.advance import Advancer, sweep
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import Launcher, ensure_network, job_name
from tao_sdk.platforms.docker.endpoint import Endpoint
from tao_sdk.platforms.docker.evidence import EvidenceCollector
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases
from tao_sdk.platforms.docker.gpu_queue import GpuQueue
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.identity import Identity
from tao_sdk.platforms.docker.logs import ContainerLog
from tao_sdk.platforms.docker.observe import Observer
from tao_sdk.platforms.docker.placeholders import remove, withdraw
from tao_sdk.platforms.docker.plan import make_plan
from tao_sdk.platforms.docker.status import Outcome
from tao_sdk.platforms.docker.submit import Submitter
from tao_sdk.platforms.docker.watch import EventBackoff
from tao_sdk.platforms.evidence import RawEvidence, ask_each
from tao_sdk.platforms.request import JobRequest
from tao_sdk.result_record import ResultRecord

_log = logging.getLogger("tao_sdk.docker")
# How long `cancel` waits. The daemon stops slower jobs by itself.
_STOP_SECONDS = 0.5


class DockerBackend(Backend):
    """Runs jobs as containers."""

    platform = "docker"
    poll_seconds = 0.25
    submit_parallelism = 8
    transport: DockerClient

    def __init__(self, endpoint: Endpoint, kept: Path, on_pull: images.Listener) -> None:
        self.transport = DockerClient(endpoint)
        self.host = DockerHost(self.transport)
        self._on_pull = on_pull
        self._files = OutcomeFiles(
            kept, Outcome, outcome_name="outcome.json", log_name="log.frames"
        )
        self._identity = Identity(self.transport)
        self._evidence = EvidenceCollector(self.transport, self.host, self._files)
        lease_folder = settings.get("TAO_GPU_LEASE_DIR") if endpoint.local else None
        self._leases = DaemonLeases(self.transport, lease_folder)
        self._launcher = Launcher(self.transport, self._leases)
        self._queue = GpuQueue(self.transport, self.host, self._leases, self._launcher)
        self._submitter = Submitter(
            transport=self.transport,
            identity=self._identity,
            host=self.host,
            leases=self._leases,
            launcher=self._launcher,
            queue=self._queue,
            files=self._files,
        )
        self._observer = Observer(
            transport=self.transport,
            leases=self._leases,
            queue=self._queue,
            files=self._files,
        )
        self._advancer = Advancer(
            transport=self.transport,
            leases=self._leases,
            queue=self._queue,
            collector=self._evidence,
            files=self._files,
        )
        self._network_exists = False
        # Weak, because a plan may never be submitted after its images were pulled.
        self._refusals: WeakKeyDictionary[Plan, SubmissionRejectedError] = WeakKeyDictionary()

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        return make_plan(request, identity, self.transport, self.host, self._identity)

    def prepare(self) -> None:
        if not self._network_exists:
            self._identity.mark()
            ensure_network(self.transport, settings.get("DOCKER_NETWORK"))
            self._network_exists = True
            sweep(self.transport)

    def provide(self, plans: Sequence[Plan]) -> None:
        wanted = {
            plan: (plan.request.image, images.pull_policy(plan.request.options.pull_policy))
            for plan in plans
        }
        refusals = images.provide(self.transport, wanted.values(), self._on_pull)
        for plan, image in wanted.items():
            self._refusals.pop(plan, None)  # of an earlier attempt
            if image in refusals:
                self._refusals[plan] = refusals[image]

    def submit(self, plan: Plan) -> Submission:
        refusal = self._refusals.pop(plan, None)
        if refusal is not None:
            raise type(refusal)(str(refusal))  # each job its own: others may want the same image
        return self._submitter.submit(plan)

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        with self._asking():
            census = self.transport.census()
            settled = {job.job_id: self._submitter.settle(job, census) for job in jobs}
            sweep(self.transport)
        return settled

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        with self._asking():
            return self._observer.observe(jobs)

    def backoff(self, job_ids: Sequence[str]) -> PollBackoff:
        return EventBackoff(self.transport, job_ids, self.poll_seconds)

    def elsewhere(self, jobs: Sequence[JobRef]) -> Mapping[str, str]:
        with self._asking():
            daemon = self._identity.ask()
        here = self.transport.endpoint
        return {
            job.job_id: daemon.why_not(job.native, here)
            for job in jobs
            if not daemon.has(job.native)
        }

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        with self._asking():
            return self._advancer.advance(jobs)

    def cancel(self, job: JobRef) -> None:
        with self._asking():
            self._cancel(job)

    def _cancel(self, job: JobRef) -> None:
        self._launcher.remove_waiting(job.job_id)
        name = job_name(job.job_id)
        found = self._launcher.inspect(name)
        if found is None:
            return
        state = found["State"]["Status"]
        if state in ("exited", "dead") or (state == "created" and withdraw(self.transport, name)):
            return
        if state == "paused":
            self.transport.api.unpause(name)  # a frozen job receives no signal
        self._stop(name, int(found["Config"]["StopTimeout"]))

    def _stop(self, name: str, seconds: int) -> None:
        """Let the daemon stop a container: gracefully, by force after its own time for it."""
        failure: list[Exception] = []

        def ask() -> None:
            try:
                self.transport.api.stop(name, seconds)
            except Exception as error:  # noqa: BLE001 - handed to the caller, or logged
                failure.append(error)
                _log.warning("stopping %s: %s", name, error)

        # The daemon answers when the container has stopped, and stops it even if we are gone.
        asking = threading.Thread(target=ask, name=f"stop-{name}", daemon=True)
        asking.start()
        asking.join(_STOP_SECONDS)
        for error in failure:
            if not (isinstance(error, DaemonError) and error.missing):
                raise error

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        return [ContainerLog(self.transport, job_name(job.job_id), self._files.log(job.job_id))]

    def close(self) -> None:
        """Let go of connections to the daemon."""
        self.transport.close()

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        return ask_each(jobs, self._evidence_of)

    def _evidence_of(self, job: JobRef) -> RawEvidence:
        with self._asking():
            return self._evidence.evidence(job)

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        with self._asking():
            return self._evidence.result_records(job)

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        found = self._launcher.inspect(job_name(job.job_id))
        if found is None or config.LABEL_FENCE in found["Config"]["Labels"]:
            return []
        state, held = found["State"], found["Config"]["Labels"].get(config.LABEL_GPUS, "")
        return [
            {
                "name": found["Name"].lstrip("/"),
                "id": found["Id"],
                "image": found["Config"]["Image"],
                "started_at": container_time(state["StartedAt"]),
                "finished_at": container_time(state["FinishedAt"]),
                "status": {
                    "node": {"name": self.transport.info.get("Name", ""), "node_group_id": ""},
                    "phase": state["Status"],
                    "readiness_issue": None,
                    "gpus": held.split(",") if held else [],
                    "exit_code": None if state["Status"] == "running" else state["ExitCode"],
                },
            }
        ]

    # ------------------------------------------------------------------ paths

    def delete_artifacts(self, job: JobRef) -> bool:
        with self._asking():
            if source := job.native["results"]:
                self.host.remove_folder(source, job.job_id, job.native["image"])
            self._launcher.remove_waiting(job.job_id)
            remove(self.transport, job_name(job.job_id))
            self._files.remove(job.job_id)
        return True

    def check_path(self, path: str) -> bool:
        return self.host.check_path(path)

    def list_path(self, path: str) -> list[str]:
        return self.host.list_path(path, self._image_with_programs)

    # ------------------------------------------------------------------ inner workings

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A daemon that refuses to answer (overloaded, shutting down) could not be asked."""
        try:
            yield
        except DaemonError as error:
            raise BackendUnreachableError(
                f"the Docker daemon at {self.transport.endpoint} refuses {error.call} "
                f"({error.status}): {error}"
            ) from error

    def _image_with_programs(self) -> str:
        """An image of the host that has been used for a job: it has a shell and `ls`."""
        jobs = self.transport.census().jobs.values()
        if not jobs:
            raise UnsupportedError(
                "listing a folder of a remote Docker host runs `ls` in the image of an earlier job "
                "there, and there is none yet"
            )
        return max(jobs, key=lambda container: container.created).image
