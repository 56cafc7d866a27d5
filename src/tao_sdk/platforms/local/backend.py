"""The local platform: processes of this machine under supervisors of their own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk import settings
from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import (
    Artefact,
    Backend,
    JobIdentity,
    JobRef,
    LogChunk,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.common import log_files
from tao_sdk.platforms.common.container_command import MAX_ARGUMENT_BYTES, fits_argument
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.common.gpu_choice import GpuRequest, choose_gpus, refuse_own_choice
from tao_sdk.platforms.gpus import leases
from tao_sdk.platforms.gpus.leases import OuterLease
from tao_sdk.platforms.local.client import LocalTransport
from tao_sdk.platforms.local.job_files import JobFolder, LocalJob
from tao_sdk.platforms.local.observe import reaching, read_records
from tao_sdk.platforms.local.orders import Orders, StagedFiles
from tao_sdk.platforms.local.status import Snapshot, interpret
from tao_sdk.platforms.local.submit import make_root
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import stop_seconds
from tao_sdk.process_identity import this_host
from tao_sdk.result_record import ResultRecord, shim_argv
from tao_sdk.secrets import PLACEHOLDER

if TYPE_CHECKING:
    from tao_sdk.platforms.evidence import RawEvidence
    from tao_sdk.platforms.gpus import discovery as machine

# The kernel takes at most 128 KiB for one word of a command line; longer commands go by file.
_EVIDENCE_LINES = 200
MOST_PROCESSES = 1024
"""Nodes of a job, each of which is a process here with a log of its own."""


class LocalBackend(Backend):
    """Runs jobs as processes of this machine."""

    platform = "local"
    poll_seconds = 0.25
    transport: LocalTransport

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transport = LocalTransport()

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        folder = self._folder(identity.job_id)
        chosen = request.options.results_root
        results_root = _check_results_root(chosen) if chosen else self.root / "results"
        files, argv = _command(request.shell_command, folder)
        staged = StagedFiles(files, [results_root / identity.job_id])
        return self.plan_argv(request, identity, argv, staged, results_root, {})

    def plan_argv(
        self,
        request: JobRequest,
        identity: JobIdentity,
        argv: Sequence[str],
        staged: StagedFiles,
        results_root: Path,
        extra_env: Mapping[str, str],
    ) -> Plan:
        """A plan that starts exactly these words."""
        _check_words(argv)
        refuse_own_choice(request, "CUDA_VISIBLE_DEVICES")
        _refuse_a_flood(request.num_nodes)
        folder = self._folder(identity.job_id)
        cwd = _check_cwd(request.options.cwd)
        outer = _outer_lease()
        usable, per_node = _gpus_for(request, outer)
        told = {
            "TAO_JOB_ID": identity.job_id,
            "TAO_RESULTS_ROOT": str(results_root),
            "TAO_ATTEMPT": "1",
            "TAO_GROUP_SIGNALS": "1",
            **{name: text for name, text in extra_env.items() if name not in request.env},
        }
        if per_node and "CUDA_DEVICE_ORDER" not in request.env:
            told["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the numbers of nvidia-smi are CUDA's, too
        secret = job_credentials(request.env)
        secret.update({name: value.reveal() for name, value in request.env.items()})
        words = shim_argv(argv)
        orders = Orders(
            job_id=identity.job_id,
            token=identity.token,
            folder=str(folder.path),
            cwd=cwd,
            argv=words,
            env={**_inherited(), **secret, **told},
            secret_names=sorted({*secret, *settings.secret_names()}),
            nodes=request.num_nodes,
            gpus_per_node=per_node,
            gpu_indexes=[gpu.index for gpu in usable],
            gpu_keys=[gpu.key for gpu in usable],
            lease_folder=settings.get("TAO_GPU_LEASE_DIR"),
            when_busy=request.options.when_busy,
            grace_seconds=stop_seconds(runner=request.payload is not None),
            gpu_fraction=request.options.gpu_fraction,
            outer_lease=outer.name if outer and per_node else "",
        )
        results = str(results_root / identity.job_id)
        with reaching(self.root):
            root_name = folder.root_name
        return Plan(
            identity=identity,
            platform=self.platform,
            request=request,
            artefacts=_artefacts(orders, staged.files, told, secret),
            intent={
                "folder": str(folder.path),
                "nodes": request.num_nodes,
                "host": this_host(),
                "root": root_name,
            },
            results_dir=results,
            local_results_dir=results,
            warnings=_warnings(request),
            payload=(orders, staged),
        )

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
        accepted = self.transport.settle(map(_local, jobs))
        return {
            job.job_id: self._submission(job.identity, job.native, "adopted")
            if accepted[job.job_id]
            else None
            for job in jobs
            if job.job_id in accepted
        }

    def _submission(
        self, identity: JobIdentity, intent: Mapping[str, Any], message: str
    ) -> Submission:
        # The first job of a root was planned before the root had a name.
        root = intent.get("root") or JobFolder(Path(intent["folder"])).root_name
        return Submission(identity.name, {**intent, "root": root}, message)

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        snapshots = self._scan(jobs)
        return {job.job_id: interpret(seen) for job, seen in zip(jobs, snapshots, strict=True)}

    def cancel(self, job: JobRef) -> None:
        self.transport.cancel(_local(job), settings.get_seconds("TAO_GRACE_SECONDS"))

    def read_log(
        self, job: JobRef, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        self.transport.calls.record("log")
        with reaching(self.root):
            return log_files.read_chunk(
                _log_files(job), cursor=cursor, tail=tail, limit=limit, flush=flush
            )

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        from tao_sdk.platforms.evidence import ask_each

        return ask_each(jobs, self._evidence)

    def _evidence(self, job: JobRef) -> RawEvidence:
        from tao_sdk.failures import Evidence, ReplicaEvidence
        from tao_sdk.platforms.evidence import RawEvidence

        [seen] = self._scan([job])
        if seen.unreachable:
            raise BackendUnreachableError(seen.unreachable)
        observation = interpret(seen)
        state = seen.state or {}
        found = Evidence(
            exit_code=observation.exit_code,
            reason="" if observation.exit_code is not None else observation.message,
            log_tail=self._log_tail(job),
            replicas=tuple(
                ReplicaEvidence(
                    rank=rank["rank"], exit_code=rank["exit_code"], ended_at=rank["ended_at"]
                )
                for rank in state.get("ranks", ())
            ),
            killed_from_outside=observation.state is JobState.ERROR
            and observation.exit_code is None
            and "outcome" not in state,
        )
        return RawEvidence(found)

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        self.transport.calls.record("records")
        with reaching(self.root):
            return read_records(_local(job))

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        [seen] = self._scan([job])
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

    def _scan(self, jobs: Sequence[JobRef]) -> list[Snapshot]:
        return self.transport.observe(map(_local, jobs))

    def _log_tail(self, job: JobRef) -> str:
        with reaching(self.root):
            return self._read_log_tail(job)

    def _read_log_tail(self, job: JobRef) -> str:
        kept = _local(job).folder.evidence
        if kept.exists():
            return kept.read_text(encoding="utf-8")
        # Its supervisor is gone and with it the knowledge of what in its log to hide.
        chunk = log_files.read_chunk(
            _log_files(job), cursor="", tail=_EVIDENCE_LINES, limit=256 * 1024, flush=True
        )
        return "\n".join(line.text for line in chunk.lines)

    # ------------------------------------------------------------------ paths

    def delete_artifacts(self, job: JobRef) -> bool:
        results = Path(job.results_dir)
        if results.name != job.job_id:
            raise ValidationError(f"{results} is not the results folder of job {job.job_id}")
        self.transport.remove(_local(job))
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

    def _folder(self, job_id: str) -> JobFolder:
        return JobFolder(self.root / "jobs" / job_id)


def local_path(path: str) -> Path:
    """A path or `file://` address of this machine; anything else is refused with the reason."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return Path(path).expanduser()
    if scheme == "file":
        return Path("/" + rest.lstrip("/"))
    raise UnsupportedError(f"{path}: neither a path of this machine, file:// nor a store we know")


def _local(job: JobRef) -> LocalJob:
    native = job.native
    return LocalJob(
        job.job_id,
        JobFolder(Path(native["folder"])),
        Path(job.results_dir),
        int(native["nodes"]),
        str(native["host"]),
        str(native.get("root", "")),
    )


def _log_files(job: JobRef) -> list[Path]:
    local = _local(job)
    return [local.folder.log(rank, local.nodes) for rank in range(local.nodes)]


def _inherited() -> dict[str, str]:
    """The caller's environment, less what would make this job a part of another one."""
    return {
        name: value
        for name, value in settings.process_environment().items()
        if name not in settings.RENDEZVOUS and name != "TAO_LEASED_GPUS"
    }


def _check_words(argv: Sequence[str]) -> None:
    for number, word in enumerate(argv):
        if not fits_argument(word):
            raise ValidationError(
                f"word {number} of the command has {len(word.encode()):,} bytes, more than the "
                f"{MAX_ARGUMENT_BYTES:,} that a program can be given: pass it in a file"
            )


def _command(command: str, folder: JobFolder) -> tuple[dict[str, str], list[str]]:
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    if fits_argument(command):
        return {}, [shell, "-c", command]
    return {"command.sh": command}, [shell, str(folder.path / "command.sh")]


def _check_cwd(cwd: str | None) -> str:
    place = _absolute("cwd", cwd or ".")
    if not _examined("cwd", place, place.is_dir):
        raise ValidationError(f"cwd: {place} is not a folder of this machine")
    return str(place)


def _check_results_root(text: str) -> Path:
    """The folder below which results go; an error when it can be seen that it cannot be made."""
    place = _absolute("results_root", text)
    nearest = place
    while not _examined("results_root", nearest, nearest.exists):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ValidationError(f"results_root: {nearest} is not a folder; choose another place")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValidationError(
            f"results_root: no permission to write in {nearest}; choose a folder of yours"
        )
    return place


def _absolute(option: str, text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except FileNotFoundError as error:
        raise ValidationError(
            f"{option}: {text} is relative, and the current folder was removed; name a whole path"
        ) from error
    except RuntimeError as error:  # ~somebody
        raise ValidationError(f"{option}: {text}: {error}") from error


def _examined(option: str, path: Path, question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError as error:
        raise ValidationError(f"{option}: cannot inspect {path}: {error.strerror}") from error


def _refuse_a_flood(nodes: int) -> None:
    if nodes > MOST_PROCESSES:
        raise CapacityError(
            f"num_nodes: {nodes} nodes asked for; here each is a process of this machine, at most "
            f"{MOST_PROCESSES}"
        )


def _outer_lease() -> OuterLease | None:
    """The lease of the local job in which this process runs, if it has GPUs."""
    return OuterLease.parse(settings.lookup("TAO_LEASED_GPUS"))


def _gpus_for(request: JobRequest, outer: OuterLease | None) -> tuple[list[machine.Gpu], int]:
    """The GPUs this job may take from, and how many each node takes."""
    wanted = GpuRequest.of(request)
    if not wanted.any:
        return [], 0
    from tao_sdk.platforms.gpus import discovery as machine  # jobs without GPUs do not need it

    found = machine.discover()
    place = "this machine"
    if outer is not None:
        if leases.has_ended(settings.get("TAO_GPU_LEASE_DIR"), outer):
            raise ValidationError(
                "TAO_LEASED_GPUS names GPUs of a job that has ended; unset it, and "
                "CUDA_VISIBLE_DEVICES, to lease GPUs of this machine"
            )
        found = [gpu for gpu in found if gpu.key in outer.keys]
    if outer is not None or settings.lookup("TAO_JOB_ID"):
        place = "the job in which this one is started"
    return choose_gpus(found, wanted, place)


def _warnings(request: JobRequest) -> tuple[str, ...]:
    notes = []
    if request.image:
        notes.append(f"image {request.image} is recorded, not used: local jobs are plain processes")
    return tuple(notes)


def _artefacts(
    orders: Orders,
    files: Mapping[str, str],
    told: Mapping[str, str],
    secret: Mapping[str, str],
) -> tuple[Artefact, ...]:
    environment = [f"{name}={value}" for name, value in sorted(told.items())]
    environment += [f"{name}={PLACEHOLDER}" for name in sorted(secret)]
    environment.append("… and the environment of the calling process")
    source = "shared with the outer job: one of" if orders.outer_lease else "leased from"
    part = f" ({orders.gpu_fraction:g} of each)" if orders.gpu_fraction < 1 else ""
    gpus = (
        f"{orders.gpus_per_node} per node{part}, {source} {', '.join(orders.gpu_indexes)}"
        if orders.gpus_per_node
        else "none"
    )
    where = [f"cwd {orders.cwd}", f"nodes {orders.nodes}", f"gpus {gpus}", f"job {orders.folder}"]
    return (
        Artefact("command", shlex.join(orders.argv)),
        Artefact("environment", "\n".join(environment)),
        Artefact("process", "\n".join(where)),
        *(Artefact(name, text) for name, text in files.items()),
    )
