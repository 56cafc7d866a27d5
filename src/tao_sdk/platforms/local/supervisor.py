"""The supervisor of one local job: a small process that outlives its client.

It claims the job (exactly one supervisor can), waits for GPUs, starts one process per node in a
session of its own, passes a cancellation on, and writes down what happened. Its orders come through
a socket, so that no environment value ever touches a disk. Forked by the spawner, which imports as
little as possible, because a client's first job waits for that.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from tao_sdk.platforms.gpus import leases
from tao_sdk.platforms.local.launch import JobFolder, Launch, write_private
from tao_sdk.platforms.local.ranks import Gate, Rank, start
from tao_sdk.platforms.local.sessions import LEFTOVER_SECONDS, end_all
from tao_sdk.process_identity import ProcessIdentity
from tao_sdk.result_record import record_name

_QUEUE_SECONDS = 0.2
_KILL_SECONDS = 0.05
_FULL_DISK_SECONDS = 1.0
_EVIDENCE_BYTES = 64 * 1024


class RefusedError(Exception):
    """Not enough GPUs, and the caller did not want to wait."""


class Supervisor:
    """Carries one launch from claim to end."""

    def __init__(self, launch: Launch, station: Station) -> None:
        self._launch = launch
        self._folder = JobFolder.of(launch)
        self._ranks: list[Rank] = []
        self._leases: dict[str, int] = {}
        self._port_lease: tuple[int, ...] = ()
        self._shared: leases.GpuLeases | None = None
        self._first_failure: Rank | None = None
        self._root_name = ""
        self._cancel_asked = False
        self._canceled = False
        self._state: dict[str, Any] = {
            "supervisor": station.identity,
            "nodes": launch.nodes,
        }
        self._wake = station.wake
        signal.signal(signal.SIGTERM, self._on_terminate)

    # ------------------------------------------------------------------ the job's way

    def claim(self) -> bool:
        """Become the only supervisor that may start this job."""
        draft = self._folder.path / f"claim.{os.getpid()}"
        self._claim = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        claim = {"supervisor": self._state["supervisor"], "token": self._launch.token}
        os.write(self._claim, json.dumps(claim).encode())
        # Locked for as long as this process lives: how it is known to live where its number means
        # nothing (another pid namespace of this machine).
        leases.lock(self._claim)
        try:
            os.link(draft, self._folder.claim)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def _secure_claim(self) -> None:
        """On the disk before the job starts: no power cut may undo the claim on a job that ran.

        Not before the client is told: it has the job in the store, on the disk. A power cut that
        undoes the claim finds a job that never ran, and that is what `settle` will say.
        """
        os.fsync(self._claim)
        folder = os.open(self._folder.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._root_name = self._folder.root_name

    def prepare_leases(self) -> None:
        """Find out what stands in the way of leases while the client still listens."""
        if self._gpus_wanted == 0 and self._launch.nodes == 1:
            return
        self._shared = leases.GpuLeases(self._launch.lease_folder)
        if self._launch.outer_lease:
            keys = self._launch.gpu_keys[: self._gpus_wanted]
            outer = leases.OuterLease(self._launch.outer_lease, tuple(keys))
            self._leases = self._shared.join(outer, keys)
            if not self._leases:
                raise OSError("the job in which this one was started has ended")
        elif self._launch.when_busy == "refuse" and self._gpus_wanted:
            self._leases = self._take(self._shared, None)
            if not self._leases:
                message = self._busy_message(self._shared, None)
                self._finish("refused", message)
                raise RefusedError(message)

    def run(self) -> None:
        """From the queue to the end."""
        if self._gpus_wanted and not self._leases and not self._wait_for_gpus():
            self._finish("canceled", "cancelled while waiting for GPUs")
            return
        if self._cancel_asked:
            self._finish("canceled", "cancelled before it started")
            return
        self._start_ranks()
        while any(rank.exit_code is None for rank in self._ranks):
            self._wait_for_signal(None)
            self._collect()
            running = [rank for rank in self._ranks if rank.exit_code is None]
            if self._first_failure is not None:
                self._end(running, self._launch.grace_seconds)
            elif running and self._cancel_asked:
                self._canceled = True
                with contextlib.suppress(OSError):  # a full disk must not cost the job its grace
                    self._write_state("running", "being cancelled")
                self._end(self._ranks, self._launch.grace_seconds)
        # Background processes that the command left behind do not outlive the job.
        self._end(self._ranks, min(LEFTOVER_SECONDS, self._launch.grace_seconds))
        self._conclude()

    def give_up(self, error: Exception) -> None:
        """Something went wrong here, not in the job: end it, and say so."""
        for rank in self._ranks:
            rank.session.kill()
        self._finish("error", f"its supervisor failed: {type(error).__name__}: {error}")

    # ------------------------------------------------------------------ GPUs

    @property
    def _gpus_wanted(self) -> int:
        return self._launch.gpus_per_node * self._launch.nodes

    @property
    def _lease_folder(self) -> leases.GpuLeases:
        assert self._shared is not None, "prepare_leases comes first"  # noqa: S101 - our own mistake
        return self._shared

    def _wait_for_gpus(self) -> bool:
        """False when the job was cancelled instead."""
        shared = self._lease_folder
        ticket = shared.join_queue(self._launch.job_id, self._launch.gpu_keys)
        try:
            said = ""
            while not self._cancel_asked:
                self._leases = self._take(shared, ticket)
                if self._leases:
                    return True
                message = self._busy_message(shared, ticket)
                if message != said:
                    self._write_state("queued", message)
                    said = message
                self._wait_for_signal(_QUEUE_SECONDS)
            return False
        finally:
            ticket.close()

    def _take(self, shared: leases.GpuLeases, ticket: leases.Ticket | None) -> dict[str, int]:
        launch = self._launch
        return shared.try_take(
            launch.gpu_keys, self._gpus_wanted, ticket, launch.gpu_fraction, launch.job_id
        )

    def _busy_message(self, shared: leases.GpuLeases, ticket: leases.Ticket | None) -> str:
        launch = self._launch
        free = len(shared.free(launch.gpu_keys, launch.gpu_fraction))
        place = shared.place(launch.gpu_keys, ticket)
        part = f"{launch.gpu_fraction:g} of each of " if launch.gpu_fraction < 1 else ""
        wanted = f"{part}{self._gpus_wanted} of {len(launch.gpu_keys)} GPUs"
        text = f"waiting for {wanted}" if ticket else f"{wanted} wanted"
        return f"{text}, {free} free, position {place + 1} in the queue"

    # ------------------------------------------------------------------ processes

    def _start_ranks(self) -> None:
        launch = self._launch
        index_of = dict(zip(launch.gpu_keys, launch.gpu_indexes, strict=True))
        granted = [key for key in launch.gpu_keys if key in self._leases]
        port = self._meeting_port() if launch.nodes > 1 else ""
        self._state["started_at"] = _now()
        gate = Gate()
        for number in range(launch.nodes):
            keys = granted[number * launch.gpus_per_node :][: launch.gpus_per_node]
            mine = [index_of[key] for key in keys]
            env = {**launch.env, "CUDA_VISIBLE_DEVICES": ",".join(mine)}
            if keys:
                outer = leases.OuterLease(launch.outer_lease or launch.job_id, tuple(keys))
                env["TAO_LEASED_GPUS"] = str(outer)
            if launch.nodes > 1:
                env.update(rendezvous(number, launch.nodes, launch.gpus_per_node, port))
            pid = start(
                launch.argv,
                env,
                cwd=launch.cwd,
                log=self._folder.log(number, launch.nodes),
                gate=gate,
                inherit=(*self._leases.values(), *self._port_lease),
            )
            self._ranks.append(Rank(number, pid, mine))
        gate.await_arrivals(launch.nodes)
        self._write_state("running", "")
        self._secure_claim()
        gate.open(launch.nodes)

    def _meeting_port(self) -> str:
        """The caller's choice, or a port that no other job of this machine has."""
        if chosen := self._launch.env.get("MASTER_PORT"):
            return chosen
        port, descriptor = self._lease_folder.take_port()
        self._port_lease = (descriptor,)
        return str(port)

    def _collect(self) -> None:
        """Take note of every rank that has ended."""
        ended = [rank for rank in self._ranks if rank.collect()]
        failed = [rank for rank in ended if rank.exit_code]
        if failed and self._first_failure is None and not self._canceled:
            self._first_failure = min(failed, key=self._moment_of_record)
        # (The last one's end is written down with the job's.)
        if ended and any(rank.exit_code is None for rank in self._ranks):
            with contextlib.suppress(OSError):  # a full disk; the end is written down anyway
                self._write_state("running", self._state["message"])

    def _moment_of_record(self, rank: Rank) -> float:
        """When the rank itself wrote that it ended: tells who was first of several found ended."""
        root = Path(self._launch.env["TAO_RESULTS_ROOT"]) / self._launch.job_id
        try:
            return (root / record_name(rank.number)).stat().st_mtime
        except OSError:
            return float("inf")

    def _end(self, ranks: list[Rank], grace_seconds: float) -> None:
        def pause() -> None:
            self._wait_for_signal(_KILL_SECONDS)
            self._collect()

        end_all([rank.session for rank in ranks], grace_seconds, pause)
        self._collect()

    def _conclude(self) -> None:
        codes = [rank.exit_code or 0 for rank in self._ranks]
        if self._canceled:
            self._state["exit_code"] = max(codes)
            self._finish("canceled", "cancelled")
        elif self._first_failure is not None:
            first = self._first_failure
            self._state["exit_code"] = first.exit_code
            where = f"rank {first.number} " if len(self._ranks) > 1 else ""
            with contextlib.suppress(OSError):  # better no evidence than no outcome
                self._keep_evidence()
            self._finish("error", f"{where}ended with exit code {first.exit_code}")
        else:
            self._state["exit_code"] = 0
            self._finish("complete", "completed")

    def _finish(self, outcome: str, message: str) -> None:
        self._state["outcome"] = outcome
        self._state["ended_at"] = _now()
        if not any(rank.alive for rank in self._ranks):
            self._give_leases_back()
        while not self._folder_was_removed:
            try:
                self._write_state("done", message)
            except OSError:
                # A full disk, a mount that is away: the outcome is all that is left to deliver.
                time.sleep(_FULL_DISK_SECONDS)
            else:
                return

    @property
    def _folder_was_removed(self) -> bool:
        """Somebody removed the job: then nobody wants to know. Not so when its disk is away."""
        folder = self._folder
        here = folder.root_marker.exists() and folder.root_name == self._root_name
        return here and not folder.path.exists()

    def _give_leases_back(self) -> None:
        for descriptor in (*self._leases.values(), *self._port_lease):
            os.close(descriptor)
        self._leases, self._port_lease = {}, ()

    def _keep_evidence(self) -> None:
        """The end of the log without the job's secrets, which only this process knows."""
        from tao_sdk.secrets import Secret, redact

        launch = self._launch
        secrets = [Secret(launch.env[name]) for name in launch.secret_names if name in launch.env]
        tails = []
        share = _EVIDENCE_BYTES // launch.nodes
        for number in range(launch.nodes):
            with open(self._folder.log(number, launch.nodes), "rb") as log:
                # Twice as much as is kept: a secret cut at the beginning would not be recognised.
                log.seek(max(0, log.seek(0, os.SEEK_END) - 2 * share))
                text = log.read().decode("utf-8", "replace")
            prefix = f"[rank {number}] " if launch.nodes > 1 else ""
            tails += [prefix + line for line in redact(text, secrets)[-share:].splitlines()]
        write_private(self._folder.evidence, "\n".join(tails))

    # ------------------------------------------------------------------ signals and files

    def _on_terminate(self, *_: object) -> None:
        self._cancel_asked = True

    def _wait_for_signal(self, seconds: float | None) -> None:
        ready, _, _ = select.select([self._wake], [], [], seconds)
        if ready:
            os.read(self._wake, 4096)

    def _write_state(self, phase: str, message: str) -> None:
        self._state.update(
            phase=phase, message=message, ranks=[rank.to_dict() for rank in self._ranks]
        )
        draft = self._folder.path / "state.draft"
        _write(draft, self._state)
        draft.replace(self._folder.state)


def rendezvous(rank: int, nodes: int, gpus: int, port: str) -> dict[str, str]:
    """The variables by which ranks find each other, in both naming styles."""
    return {
        "WORLD_SIZE": str(nodes),
        "NNODES": str(nodes),
        "NUM_GPU_PER_NODE": str(gpus),
        "NPROC_PER_NODE": str(gpus),
        "NODE_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


class Station(NamedTuple):
    """What a process needs to be a supervisor, whichever job it gets."""

    identity: str
    wake: int
    """Becomes readable with every signal."""

    @classmethod
    def set_up(cls) -> Station:
        wake, signalled = os.pipe()
        os.set_blocking(signalled, False)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return cls(str(ProcessIdentity.current()), wake)


def _write(path: Path, value: dict[str, Any]) -> None:
    write_private(path, json.dumps(value))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()


def supervise(launch: Launch, station: Station, answer: Callable[[dict[str, Any]], None]) -> None:
    """Claim the job, tell the client so in the one answer it gets, carry the job to its end."""
    supervisor = Supervisor(launch, station)
    if not supervisor.claim():
        answer({"rejected": "another supervisor has this job"})
        return
    try:
        supervisor.prepare_leases()
    except RefusedError as error:
        answer({"refused": str(error)})
        return
    except OSError as error:
        supervisor.give_up(error)
        answer({"rejected": f"GPU leases cannot be kept: {error}"})
        return
    answer({"claimed": os.getpid()})
    try:
        supervisor.run()
    except Exception as error:
        supervisor.give_up(error)
        raise  # the traceback goes to supervisor.log
