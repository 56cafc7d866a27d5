"""The supervisor of one local job: a small process that outlives its client.

It claims the job (exactly one supervisor can), waits for GPUs, starts one process per node in a
group of its own, passes a cancellation on, and writes down what happened. It reads its orders from
a pipe, so that no environment value ever touches a disk. Run by `transport.spawn`; it imports as
little as possible, because every job pays for its start.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tao_sdk.platforms.local import leases
from tao_sdk.platforms.local.launch import JobFolder, Launch
from tao_sdk.process_identity import ProcessIdentity, group_alive, start_time, this_host

_QUEUE_SECONDS = 0.2
_KILL_SECONDS = 0.05
_LEFTOVER_SECONDS = 2.0
_DEFAULT_PORT = 29500


class RefusedError(Exception):
    """Not enough GPUs, and the caller did not want to wait."""


class Rank:
    """One process of the job: the leader of its own session and process group."""

    def __init__(self, number: int, pid: int, gpus: list[str]) -> None:
        self.number = number
        self.pid = pid
        self.gpus = gpus
        self.identity = str(ProcessIdentity(this_host(), pid, start_time(pid) or ""))
        self.exit_code: int | None = None
        self.ended_at = ""

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    @property
    def group_alive(self) -> bool:
        return group_alive(self.pid)

    def to_dict(self) -> dict[str, Any]:
        return {
            "rank": self.number,
            "process": self.identity,
            "gpus": self.gpus,
            "exit_code": self.exit_code,
            "ended_at": self.ended_at,
        }


class Supervisor:
    """Carries one launch from claim to end."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._folder = JobFolder(Path(launch.folder))
        self._ranks: list[Rank] = []
        self._leases: dict[str, int] = {}
        self._first_failure: Rank | None = None
        self._cancel_asked = False
        self._canceled = False
        self._state: dict[str, Any] = {
            "supervisor": str(ProcessIdentity.current()),
            "nodes": launch.nodes,
        }
        self._wake_read = _install_signal_pipe(self._on_terminate)

    # ------------------------------------------------------------------ the job's way

    def claim(self) -> bool:
        """Become the only supervisor that may start this job."""
        draft = self._folder.path / f"claim.{os.getpid()}"
        _write(draft, {"supervisor": self._state["supervisor"], "token": self._launch.token})
        try:
            os.link(draft, self._folder.claim)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        self._write_state("starting", "its supervisor has it")
        return True

    def take_gpus_now(self) -> None:
        """For callers that do not want to wait: the GPUs at once, or `RefusedError`."""
        if self._gpus_wanted:
            self._leases = self._gpu_leases().try_take(
                self._launch.gpu_keys, self._gpus_wanted, None
            )
            if not self._leases:
                message = self._busy_message(None)
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
            if self._cancel_asked and not self._canceled:
                self._canceled = True
                self._write_state("running", "being cancelled")
                self._stop(self._ranks)
            elif self._first_failure is not None:
                self._stop([rank for rank in self._ranks if rank.exit_code is None])
        self._end_leftovers()
        self._conclude()

    # ------------------------------------------------------------------ GPUs

    @property
    def _gpus_wanted(self) -> int:
        return self._launch.gpus_per_node * self._launch.nodes

    def _gpu_leases(self) -> leases.GpuLeases:
        return leases.GpuLeases(self._launch.lease_folder)

    def _wait_for_gpus(self) -> bool:
        """False when the job was cancelled instead."""
        shared = self._gpu_leases()
        ticket = shared.join_queue(self._launch.job_id)
        try:
            said = ""
            while not self._cancel_asked:
                self._leases = shared.try_take(self._launch.gpu_keys, self._gpus_wanted, ticket)
                if self._leases:
                    return True
                message = self._busy_message(ticket)
                if message != said:
                    self._write_state("queued", message)
                    said = message
                self._wait_for_signal(_QUEUE_SECONDS)
            return False
        finally:
            ticket.close()

    def _busy_message(self, ticket: leases.Ticket | None) -> str:
        shared = self._gpu_leases()
        free = len(shared.free(self._launch.gpu_keys))
        place = shared.place(ticket)
        text = (
            f"waiting for {self._gpus_wanted} of {len(self._launch.gpu_keys)} GPUs, {free} free"
            if ticket
            else f"{self._gpus_wanted} of {len(self._launch.gpu_keys)} GPUs wanted, {free} free"
        )
        return f"{text}, position {place + 1} in the queue"

    # ------------------------------------------------------------------ processes

    def _start_ranks(self) -> None:
        launch = self._launch
        index_of = dict(zip(launch.gpu_keys, launch.gpu_indexes, strict=True))
        granted = [index_of[key] for key in self._leases]
        port = launch.env.get("MASTER_PORT") or str(_free_port()) if launch.nodes > 1 else ""
        self._state["started_at"] = _now()
        # The processes wait behind this gate until it is written down that they exist: were we
        # killed in between, they would read its end and leave, and nothing unrecorded ever runs.
        gate, open_gate = os.pipe()
        for number in range(launch.nodes):
            mine = granted[number * launch.gpus_per_node :][: launch.gpus_per_node]
            env = {**launch.env, "CUDA_VISIBLE_DEVICES": ",".join(mine)}
            if launch.nodes > 1:
                env.update(rendezvous(number, launch.nodes, launch.gpus_per_node, port))
            self._ranks.append(Rank(number, self._fork(number, env, gate, open_gate), mine))
        self._write_state("running", "")
        os.write(open_gate, b"." * launch.nodes)
        os.close(open_gate)
        os.close(gate)

    def _fork(self, number: int, env: dict[str, str], gate: int, open_gate: int) -> int:
        # Opened before the fork, so that a full disk is an error here and not a silent child.
        log = os.open(
            self._folder.log(number, self._launch.nodes),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        pid = os.fork()
        if pid:
            os.close(log)
            return pid
        try:
            os.setsid()
            os.close(open_gate)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            for descriptor in self._leases.values():
                os.set_inheritable(descriptor, True)
            signal.set_wakeup_fd(-1)
            for name in (signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD, signal.SIGINT):
                signal.signal(name, signal.SIG_DFL)
            os.chdir(self._launch.cwd)
            if os.read(gate, 1):
                os.execve(self._launch.argv[0], self._launch.argv, env)  # noqa: S606 - the job
        except OSError as error:
            os.write(2, f"cannot start the job: {error}\n".encode())
        finally:
            os._exit(126)

    def _collect(self) -> None:
        """Take note of every rank that has ended."""
        for rank in self._ranks:
            if rank.exit_code is not None:
                continue
            pid, status = os.waitpid(rank.pid, os.WNOHANG)
            if pid == 0:
                continue
            code = os.waitstatus_to_exitcode(status)
            rank.exit_code = 128 - code if code < 0 else code
            rank.ended_at = _now()
            if rank.exit_code and self._first_failure is None and not self._canceled:
                self._first_failure = rank
            self._write_state("running", self._state["message"])

    def _stop(self, ranks: list[Rank]) -> None:
        """SIGTERM, a grace period, SIGKILL."""
        for rank in ranks:
            rank.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._launch.grace_seconds
        while any(rank.group_alive for rank in ranks):
            if time.monotonic() >= deadline:
                for rank in ranks:
                    rank.signal(signal.SIGKILL)
            self._wait_for_signal(_KILL_SECONDS)
        self._collect()

    def _end_leftovers(self) -> None:
        """Background processes that the command left behind do not outlive the job."""
        left = [rank for rank in self._ranks if rank.group_alive]
        for rank in left:
            rank.signal(signal.SIGTERM)
        deadline = time.monotonic() + min(_LEFTOVER_SECONDS, self._launch.grace_seconds)
        while any(rank.group_alive for rank in left):
            if time.monotonic() >= deadline:
                for rank in left:
                    rank.signal(signal.SIGKILL)
            time.sleep(_KILL_SECONDS)

    def _conclude(self) -> None:
        codes = [rank.exit_code or 0 for rank in self._ranks]
        if self._canceled:
            self._state["exit_code"] = max(codes)
            self._finish("canceled", "cancelled")
        elif self._first_failure is not None:
            first = self._first_failure
            self._state["exit_code"] = first.exit_code
            where = f"rank {first.number} " if len(self._ranks) > 1 else ""
            self._finish("error", f"{where}ended with exit code {first.exit_code}")
        else:
            self._state["exit_code"] = 0
            self._finish("complete", "completed")

    def _finish(self, outcome: str, message: str) -> None:
        self._state["outcome"] = outcome
        self._state["ended_at"] = _now()
        self._write_state("done", message)

    # ------------------------------------------------------------------ signals and files

    def _on_terminate(self) -> None:
        self._cancel_asked = True

    def _wait_for_signal(self, seconds: float | None) -> None:
        ready, _, _ = select.select([self._wake_read], [], [], seconds)
        if ready:
            os.read(self._wake_read, 4096)

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


def _free_port() -> int:
    """The usual port when nobody has it; two jobs of one machine must not meet on it."""
    import socket

    for wish in (_DEFAULT_PORT, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", wish))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")


def _install_signal_pipe(on_terminate: Callable[[], None]) -> int:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: on_terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return read_end


def _write(path: Path, value: dict[str, Any]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as out:
        json.dump(value, out)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()


def _say(answer: dict[str, Any]) -> None:
    """Tell the client, who may be gone by now."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(answer).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)


def main() -> None:
    launch = Launch.loads(sys.stdin.buffer.read())
    if os.fork():
        os._exit(0)  # the client waits for this one; the child goes on alone
    supervisor = Supervisor(launch)
    if not supervisor.claim():
        _say({"refused": "another supervisor has this job"})
        return
    try:
        if launch.when_busy == "refuse":
            supervisor.take_gpus_now()
    except RefusedError as error:
        _say({"refused": str(error)})
        return
    _say({"claimed": os.getpid()})
    supervisor.run()
