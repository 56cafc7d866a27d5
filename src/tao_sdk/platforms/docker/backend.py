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
from tao_sdk.errors import (
    BackendUnreachableError,
    SubmissionRejectedError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.failures import Evidence
from tao_sdk.models import Mount
from tao_sdk.platforms.backend import (
    Backend,
    JobIdentity,
    JobRef,
    LogChunk,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.capabilities import PollBackoff
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.common.gpu_choice import choose_gpus
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.common.mounts import results_mount
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.docker import cleanup, config, gpus, images, users
from tao_sdk.platforms.docker import plan as planning
from tao_sdk.platforms.docker.advance import Advancer
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import Launcher, job_name
from tao_sdk.platforms.docker.endpoint import Endpoint
from tao_sdk.platforms.docker.evidence import EvidenceCollector
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases
from tao_sdk.platforms.docker.gpu_queue import GpuQueue
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.identity import Identity
from tao_sdk.platforms.docker.logs import LogReader
from tao_sdk.platforms.docker.network import ensure_network
from tao_sdk.platforms.docker.observe import Observer
from tao_sdk.platforms.docker.status import Outcome
from tao_sdk.platforms.docker.submit import Submitter
from tao_sdk.platforms.docker.watch import EventBackoff
from tao_sdk.platforms.evidence import RawEvidence, ask_each
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import results_in_bucket, runner_settings, stop_seconds
from tao_sdk.result_record import ResultRecord

_log = logging.getLogger("tao_sdk.docker")
# A well-behaved job stops in this time; for others the daemon goes on without us.
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
        self._files = OutcomeFiles(
            kept, Outcome, outcome_name="outcome.json", log_name="log.frames"
        )
        self._on_pull = on_pull
        lease_folder = settings.get("TAO_GPU_LEASE_DIR") if endpoint.local else None
        self._leases = DaemonLeases(self.transport, lease_folder)
        self._launcher = Launcher(self.transport, self._leases)
        self._queue = GpuQueue(self.transport, self._leases, self._launcher)
        self._logs = LogReader(self.transport)
        self._identity = Identity(self.transport)
        self._evidence = EvidenceCollector(self.transport, self.host, self._logs, self._files)
        self._submitter = Submitter(
            self.transport,
            self.transport.census,
            self._identity,
            self.host,
            self._leases,
            self._launcher,
            self._queue,
            self._files,
        )
        self._cleanup = cleanup.Cleanup(
            self.transport, self.host, self._launcher, self._logs, self._evidence, self._files
        )
        self._observer = Observer(
            self.transport,
            self.transport.census,
            self._identity,
            self.host,
            self._leases,
            self._queue,
            self._evidence,
            self._files,
        )
        self._advancer = Advancer(
            self.transport,
            self.transport.census,
            self._identity,
            self.host,
            self._leases,
            self._queue,
            self._cleanup,
            self._files,
        )
        self._network_exists = False
        # Weak, because a plan need not come to be submitted after its images were fetched.
        self._refusals: WeakKeyDictionary[Plan, SubmissionRejectedError] = WeakKeyDictionary()

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        planning.refuse_impossible(request)
        wish = gpus.request_of(request)
        info = self.transport.info
        known = self.host.known_gpus() if wish.any else None
        if known is not None:
            choose_gpus(gpus.with_unlisted(known, wish), wish, gpus.HOST)
        mounts: tuple[Mount, ...] = request.options.mounts
        folders = self._check_sources(mounts)
        results = results_mount(mounts)
        user = users.choose(
            request.options,
            planning.caller(),
            local=self._local,
            results=results is not None,
            info=info,
        )
        injected = job_credentials(request.env)
        body = config.container_config(
            request,
            config.Settled(
                job_id=identity.job_id,
                token=identity.token,
                network=settings.get("DOCKER_NETWORK"),
                user=user,
                info=info,
                credentials=injected,
                runner=runner_settings(request),
                stop_seconds=stop_seconds(runner=request.payload is not None),
                keep_container=not planning.auto_remove(),
            ),
        )
        secret_names = frozenset({*request.env, *injected})
        command = config.command_file(request.shell_command)
        results_dir = planning.results_address(results, identity.job_id, local=self._local)
        if results is None:
            env = config.environment_of(body)
            results_dir = results_in_bucket(request, env, identity.job_id)
        local_bind = self._local and results is not None and results.source.startswith("/")
        return Plan(
            identity=identity,
            platform=self.platform,
            request=request,
            artefacts=planning.artefacts(
                identity, body, secret_names, wish, command, self.transport
            ),
            intent={
                **self._identity.known().native(),
                "endpoint": self.transport.endpoint.url,
                "results": results.source if results else "",
                "image": request.image,
                "secret_names": sorted(secret_names),
            },
            results_dir=results_dir,
            local_results_dir=results_dir if local_bind else "",
            warnings=planning.notes(user, results_dir, wish, request, known),
            payload=(body, wish, command, folders),
        )

    def prepare(self) -> None:
        if not self._network_exists:
            self._make_network()
            self._network_exists = True
            cleanup.sweep(self.transport)

    def provide(self, plans: Sequence[Plan]) -> None:
        wanted = {plan: _image_of(plan) for plan in plans}
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
            daemon, census = self._identity.ask(), self.transport.census()
            known = {*census.jobs, *census.queued}
            # "Nothing was submitted" is for the daemon to say that it would have been given to.
            mine = [job for job in jobs if job.job_id in known or daemon.has(job.native)]
            settled = {job.job_id: self._submitter.settle(job, census) for job in mine}
            cleanup.sweep(self.transport)
        return settled

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        with self._asking():
            return self._observer.observe(jobs)

    def backoff(self, job_ids: Sequence[str]) -> PollBackoff:
        return EventBackoff(self.transport, job_ids, self.poll_seconds)

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        """Start waiting jobs, save what goes with containers, give back GPUs."""
        with self._asking():
            return self._advancer.advance(jobs)

    def cancel(self, job: JobRef) -> None:
        with self._asking():
            self._cancel(job)

    def _cancel(self, job: JobRef) -> None:
        self._launcher.remove_waiting(job.job_id)
        name = job_name(job.job_id)
        try:
            found = self.transport.api.inspect_container(name)
        except DaemonError as error:
            if not error.missing:
                raise
            if self._files.outcome(job.job_id) is None:
                self._require_here(job)
            return
        state = found["State"]["Status"]
        if state in ("exited", "dead") or (state == "created" and self._launcher.withdraw(name)):
            return
        if state == "paused":
            self.transport.api.unpause(name)  # a frozen job hears nothing
        self._stop(name, int(found["Config"]["StopTimeout"]))

    def _stop(self, name: str, seconds: int) -> None:
        """Let the daemon stop a container: gracefully, by force after its own time for it."""
        trouble: list[Exception] = []

        def ask() -> None:
            try:
                self.transport.api.stop(name, seconds)
            except Exception as error:  # noqa: BLE001 - handed to the caller, or logged
                trouble.append(error)
                _log.warning("stopping %s: %s", name, error)

        # The daemon answers when the container has stopped, and stops it even if we are gone.
        asking = threading.Thread(target=ask, name=f"stop-{name}", daemon=True)
        asking.start()
        asking.join(_STOP_SECONDS)
        if trouble and not _is_gone(trouble[0]):
            raise trouble[0]

    def read_log(
        self, job: JobRef, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        return self._logs.read(
            job_name(job.job_id),
            self._files.log(job.job_id),
            cursor=cursor,
            tail=tail,
            limit=limit,
            flush=flush,
        )

    def release_log(self, job: JobRef, cursor: str) -> None:
        self._logs.release(job_name(job.job_id), cursor)

    def close(self) -> None:
        """Let go of connections to the daemon."""
        self._logs.close()
        self.transport.close()

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        return ask_each(jobs, self._evidence_of)

    def _evidence_of(self, job: JobRef) -> RawEvidence:
        with self._asking():
            found = self._evidence.evidence(job)
            if found.evidence == Evidence():
                self._require_here(job)
            return found

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        with self._asking():
            return self._evidence.result_records(job)

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        try:
            found = self.transport.api.inspect_container(job_name(job.job_id))
        except DaemonError as error:
            if not error.missing:
                raise
            return []
        state, labels = found["State"], found["Config"]["Labels"]
        if config.LABEL_FENCE in labels:
            return []  # what keeps the name of a job that was never submitted
        held = labels.get(config.LABEL_GPUS, "")
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
            self._require_here(job)
            self._cleanup.delete(job)
        return True

    def check_path(self, path: str) -> bool:
        return self.host.check_path(path)

    def list_path(self, path: str) -> list[str]:
        return self.host.list_path(path, self._image_with_programs)

    # ------------------------------------------------------------------ inner workings

    @property
    def _local(self) -> bool:
        return self.transport.endpoint.local

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A daemon that refuses to say (overloaded, shutting down) was not asked."""
        try:
            yield
        except DaemonError as error:
            raise BackendUnreachableError(
                f"the Docker daemon at {self.transport.endpoint} refuses {error.call} "
                f"({error.status}): {error}"
            ) from error

    def _require_here(self, job: JobRef) -> None:
        """Raise unless this daemon is the one to be asked about a job that it does not know."""
        if away := self._observer.elsewhere(job, self._identity.ask()):
            raise BackendUnreachableError(away)

    def _make_network(self) -> None:
        self._identity.mark()
        ensure_network(self.transport, settings.get("DOCKER_NETWORK"))

    def _check_sources(self, mounts: Sequence[Mount]) -> list[Path]:
        """Folders of this machine to be made; remote ones are checked by their daemon."""
        to_make = []
        for number, mount in enumerate(mounts):
            source = Path(mount.source)
            if not self._local or not source.is_absolute() or source.exists():
                continue
            if mount.read_only:
                raise ValidationError(
                    f"mounts[{number}]: {source} is not on this machine, and a read-only mount of "
                    "nothing makes no sense"
                )
            to_make.append(source)
        return to_make

    def _image_with_programs(self) -> str:
        """An image of the host that has been used for a job: it has a shell and `ls`."""
        census = self.transport.census()
        known = sorted(census.jobs.values(), key=lambda container: container.created)
        if not known:
            raise UnsupportedError(
                "listing a folder of a remote Docker host runs `ls` in the image of an earlier job "
                "there, and there is none yet"
            )
        return known[-1].image


def _image_of(plan: Plan) -> images.Wanted:
    return plan.request.image, images.pull_policy(plan.request.options.pull_policy)


def _is_gone(error: Exception) -> bool:
    return isinstance(error, DaemonError) and error.missing
