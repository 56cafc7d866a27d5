"""The supervisor of one local job: a small process that outlives its client.

It claims the job (exactly one supervisor can), waits for GPUs, starts one process per node in a
session of its own, passes a cancellation on, and records what happened. Its orders arrive through a
socket, so that no environment value is written to a disk. The spawner forks it, and imports as
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
from pathlib import Path
from typing import Any

from tao_sdk.errors import CapacityError
from tao_sdk.job_states import utc_now
from tao_sdk.platforms.gpus import leases
from tao_sdk.platforms.gpus.lease_folder import LeasesUnavailableError
from tao_sdk.platforms.local.job_files import write_private
from tao_sdk.platforms.local.orders import Orders
from tao_sdk.platforms.local.process_groups import LEFTOVER_SECONDS, end_all
from tao_sdk.platforms.local.rank_process import Gate, Rank, start
from tao_sdk.result_record import record_name
from tao_sdk.untrusted import open_regular

_QUEUE_SECONDS = 0.2
_KILL_SECONDS = 0.05
_FULL_DISK_SECONDS = 1.0
# No lock is awaited for longer: a cancellation is noticed after that.
_LEASE_PATIENCE_SECONDS = 1.0
_LEASE_CHECK_SECONDS = 1.0
_FOLDER_CHECK_SECONDS = 30.0
_EVIDENCE_BYTES = 64 * 1024


class RemovedError(Exception):
    """The folder of the job was deleted while the job ran."""


class Supervisor:
    """Carries one job from claim to end."""

    _lease_folder: leases.GpuLeases
    _restorer: leases.GpuLeases
    """Both are set by `prepare_leases` for jobs that lease anything."""

    def __init__(self, orders: Orders, identity: str, wake: int) -> None:
        self._orders = orders
        self._gpus_wanted = orders.gpus_per_node * orders.nodes
        self._folder = orders.job_folder
        self._ranks: list[Rank] = []
        self._lease: leases.GpuLease | None = None
        self._port_locks: list[int] = []
        self._first_failure: Rank | None = None
        self._cancel_asked = False
        self._canceled = False
        self._state: dict[str, Any] = {
            "supervisor": identity,
            "nodes": orders.nodes,
        }
        self._wake = wake
        signal.signal(signal.SIGTERM, self._on_terminate)

    # ------------------------------------------------------------------ from claim to end

    def claim(self) -> bool:
        """Become the only supervisor that may start this job."""
        draft = self._folder.path / f"claim.{os.getpid()}"
        self._claim = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        claim = {"supervisor": self._state["supervisor"], "token": self._orders.token}
        os.write(self._claim, json.dumps(claim).encode())
        # Locked for as long as this process lives: clients in another pid namespace of this
        # machine, where its number means nothing, see by the lock that it does.
        leases.lock(self._claim)
        try:
            os.link(draft, self._folder.claim)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def _secure_claim(self) -> None:
        """Write the claim to the disk before the job starts, so that no power cut can undo it once
        the job ran.

        The client is answered before that: it has the job in the store, on the disk. After a power
        cut that undoes the claim, `settle` finds a job that never ran, which is true.
        """
        os.fsync(self._claim)
        folder = os.open(self._folder.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def prepare_leases(self) -> None:
        """Take or prepare the GPU leases while the client still waits for an answer."""
        if self._gpus_wanted == 0 and self._orders.nodes == 1:
            return
        self._lease_folder = leases.GpuLeases(
            self._orders.lease_folder, _LEASE_PATIENCE_SECONDS, self._wait_for_signal
        )
        self._lease_folder.make()
        # While the job runs, nothing waits for a lock.
        self._restorer = leases.GpuLeases(self._orders.lease_folder, 0.0)
        if self._orders.outer_lease:
            keys = self._orders.gpu_keys[: self._gpus_wanted]
            outer = leases.OuterLease(self._orders.outer_lease, tuple(keys))
            self._lease = self._lease_folder.join(outer, keys)
            if self._lease is None:
                raise LeasesUnavailableError("the job in which this one was started has ended")
        elif self._orders.when_busy == "refuse" and self._gpus_wanted:
            message = self._take(None)
            if message:
                self._finish("refused", message)
                raise CapacityError(message)

    def run(self) -> None:
        """Wait for GPUs, run the job, record its end."""
        if self._gpus_wanted and self._lease is None and not self._wait_for_gpus():
            self._finish("canceled", "cancelled while waiting for GPUs")
            return
        if self._cancel_asked:
            self._finish("canceled", "cancelled before it started")
            return
        self._start_ranks()
        while any(rank.exit_code is None for rank in self._ranks):
            self._wait_for_signal(
                _FOLDER_CHECK_SECONDS if self._lease is None else _LEASE_CHECK_SECONDS
            )
            self._collect()
            self._restore_lease()
            if self._is_removed():
                self._end(self._ranks, self._orders.grace_seconds)
                raise RemovedError(f"{self._folder.path} was removed while the job ran")
            running = [rank for rank in self._ranks if rank.exit_code is None]
            if self._first_failure is not None:
                self._end(running, self._orders.grace_seconds)
            elif running and self._cancel_asked:
                self._canceled = True
                with contextlib.suppress(OSError):  # a full disk must not cost the job its grace
                    self._write_state("running", "being cancelled")
                self._end(self._ranks, self._orders.grace_seconds)
        # Background processes of the command do not outlive the job.
        self._end(self._ranks, min(LEFTOVER_SECONDS, self._orders.grace_seconds))
        self._conclude()

    def give_up(self, error: Exception) -> None:
        """After an error of the supervisor itself: end the job and record why."""
        for rank in self._ranks:
            rank.session.kill()
        self._finish("error", f"its supervisor failed: {type(error).__name__}: {error}")

    # ------------------------------------------------------------------ GPUs

    def _wait_for_gpus(self) -> bool:
        """False if the job was cancelled instead."""
        ticket: leases.Ticket | None = None
        try:
            written = ""
            while not self._cancel_asked:
                try:
                    ticket = ticket or self._lease_folder.join_queue(
                        self._orders.job_id, self._orders.gpu_keys
                    )
                    message = self._take(ticket)
                except LeasesUnavailableError as error:
                    message = f"waiting for GPUs: {error}"
                if not message:
                    return True
                if message != written:
                    self._write_state("queued", message)
                    written = message
                self._wait_for_signal(_QUEUE_SECONDS)
            return False
        finally:
            if ticket is not None:
                ticket.close()

    def _take(self, ticket: leases.Ticket | None) -> str:
        """Lease the GPUs; why that cannot be done now, or "" when it is done."""
        orders, folder = self._orders, self._lease_folder
        self._lease = folder.try_take(
            orders.gpu_keys, self._gpus_wanted, ticket, orders.gpu_fraction, orders.job_id
        )
        if self._lease is not None:
            return ""
        found = folder.look(orders.gpu_keys, ticket, orders.gpu_fraction)
        part = f"{orders.gpu_fraction:g} of each of " if orders.gpu_fraction < 1 else ""
        wanted = f"{part}{self._gpus_wanted} of {len(orders.gpu_keys)} GPUs"
        text = f"waiting for {wanted}" if ticket else f"{wanted} wanted"
        place = f"{len(found.free)} free, position {found.ahead + 1} in the queue"
        return "; ".join([f"{text}, {place}", *found.obstacles])

    def _restore_lease(self) -> None:
        """Make lock files of the job's GPUs again that were deleted while it runs."""
        if self._lease is None:
            return
        with contextlib.suppress(LeasesUnavailableError):  # tried again soon
            lost = self._restorer.restore(self._lease)
            message = (
                f"the lock files of {', '.join(lost)} were deleted, and another job leased the "
                "same GPUs: both jobs use them"
            )
            if lost and message != self._state["message"]:
                with contextlib.suppress(OSError):  # a full disk
                    self._write_state("running", message)

    # ------------------------------------------------------------------ processes

    def _start_ranks(self) -> None:
        orders = self._orders
        index_of = dict(zip(orders.gpu_keys, orders.gpu_indexes, strict=True))
        leased = self._lease.keys if self._lease else []
        granted = [key for key in orders.gpu_keys if key in leased]
        port = self._meeting_port() if orders.nodes > 1 else ""
        self._state["started_at"] = utc_now()
        gate = Gate()
        for number in range(orders.nodes):
            keys = granted[number * orders.gpus_per_node :][: orders.gpus_per_node]
            mine = [index_of[key] for key in keys]
            env = {**orders.env, "CUDA_VISIBLE_DEVICES": ",".join(mine)}
            if keys:
                outer = leases.OuterLease(orders.outer_lease or orders.job_id, tuple(keys))
                env["TAO_LEASED_GPUS"] = str(outer)
            if orders.nodes > 1:
                env.update(rendezvous(number, orders.nodes, orders.gpus_per_node, port))
            pid = start(
                orders.argv,
                env,
                cwd=orders.cwd,
                log=self._folder.log(number, orders.nodes),
                gate=gate,
                inherit=[*(self._lease.descriptors if self._lease else []), *self._port_locks],
            )
            self._ranks.append(Rank(number, pid, mine))
        gate.await_arrivals(orders.nodes)
        self._write_state("running", "")
        self._secure_claim()
        gate.open(orders.nodes)

    def _meeting_port(self) -> str:
        """The user's choice, or a port that no other job of this machine has."""
        if chosen := self._orders.env.get("MASTER_PORT"):
            return chosen
        port, self._port_locks = self._lease_folder.take_port()
        return str(port)

    def _collect(self) -> None:
        """Record every rank that has ended."""
        ended = [rank for rank in self._ranks if rank.collect()]
        failed = [rank for rank in ended if rank.exit_code]
        if failed and self._first_failure is None and not self._canceled:
            self._first_failure = min(failed, key=self._time_of_record)
        # The end of the last one is written together with the job's.
        if ended and any(rank.exit_code is None for rank in self._ranks):
            with contextlib.suppress(OSError):  # a full disk; the end is written all the same
                self._write_state("running", self._state["message"])

    def _time_of_record(self, rank: Rank) -> float:
        """When the rank itself wrote that it ended: orders several that ended between two looks."""
        root = Path(self._orders.env["TAO_RESULTS_ROOT"]) / self._orders.job_id
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
            with contextlib.suppress(OSError):  # the outcome matters more
                self._write_evidence()
            self._finish("error", f"{where}ended with exit code {first.exit_code}")
        else:
            self._state["exit_code"] = 0
            self._finish("complete", "completed")

    def _finish(self, outcome: str, message: str) -> None:
        self._state["outcome"] = outcome
        self._state["ended_at"] = utc_now()
        if self._lease is not None and not any(rank.alive for rank in self._ranks):
            self._lease.release()
            self._lease = None
        while True:
            try:
                self._write_state("done", message)
            except OSError:
                if self._is_removed():
                    return  # its outcome is not wanted
                # A full or unmounted disk: the outcome is all that is left to deliver.
                time.sleep(_FULL_DISK_SECONDS)
            else:
                return

    def _is_removed(self) -> bool:
        """Whether the job's folder was deleted; a disk that is away does not count."""
        with contextlib.suppress(OSError):
            if os.fstat(self._claim).st_nlink == 0:
                return True
        return self._folder.root_marker.exists() and not self._folder.path.exists()

    def _write_evidence(self) -> None:
        """Keep the end of the log without the job's secrets, which only this process knows."""
        from tao_sdk.secrets import Secret, redact

        orders = self._orders
        secrets = [Secret(orders.env[name]) for name in orders.secret_names if name in orders.env]
        tails = []
        share = _EVIDENCE_BYTES // orders.nodes
        for number in range(orders.nodes):
            log = open_regular(self._folder.log(number, orders.nodes))
            if log is None:
                continue  # the job has put something else in its place
            with log:
                # Twice as much as is kept: a secret cut at the beginning would not be recognised.
                log.seek(max(0, log.seek(0, os.SEEK_END) - 2 * share))
                text = log.read().decode("utf-8", "replace")
            prefix = f"[rank {number}] " if orders.nodes > 1 else ""
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
        write_private(draft, json.dumps(self._state))
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


def _tell_the_system(message: str) -> None:
    import syslog  # most supervisors end otherwise

    syslog.syslog(syslog.LOG_WARNING, message)


def listen_for_signals() -> int:
    """Returns a descriptor that becomes readable at every signal."""
    wake, signalled = os.pipe()
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return wake


def supervise(
    orders: Orders, identity: str, wake: int, answer: Callable[[dict[str, Any]], None]
) -> None:
    """Claim the job, send the client its one answer, and carry the job to its end."""
    supervisor = Supervisor(orders, identity, wake)
    if not supervisor.claim():
        answer({"rejected": "another supervisor has this job"})
        return
    try:
        supervisor.prepare_leases()
    except CapacityError as error:
        answer({"refused": str(error)})
        return
    except (OSError, LeasesUnavailableError) as error:
        supervisor.give_up(error)
        answer({"rejected": f"GPU leases cannot be kept: {error}"})
        return
    answer({"claimed": os.getpid()})
    try:
        supervisor.run()
    except RemovedError as error:
        # Its files, which would tell, are gone; clients report the job as missing.
        _tell_the_system(f"tao-sdk: job {orders.job_id} was ended: {error}")
    except Exception as error:
        supervisor.give_up(error)
        raise  # the traceback goes to supervisor.log
