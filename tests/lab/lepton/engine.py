"""Runs the jobs of a workspace: a process for each worker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from lab.lepton.state import PlayedJob, State, Worker

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Engine:
    """Starts, stops and buries."""

    def __init__(self, state: State, *, slots: int = 64, grace: float = 2.0) -> None:
        self._state = state
        self._slots = threading.Semaphore(slots)
        self.grace = grace
        self.runs = True
        """False: nothing starts by itself, and tests say what becomes of jobs."""
        self._closed = threading.Event()
        self._processes: set[int] = set()

    def start(self, job: PlayedJob) -> None:
        if self.runs:
            threading.Thread(target=self._run, args=(job,), daemon=True).start()

    def close(self) -> None:
        """Nothing of it runs afterwards."""
        self._closed.set()
        for job in list(self._state.jobs.values()):
            job.stop.set()
        for pid in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    # ------------------------------------------------------------------ inner workings

    def _run(self, job: PlayedJob) -> None:
        gpus = self._wait_for_gpus(job)
        try:
            while not self._slots.acquire(timeout=0.05):
                if job.stop.is_set() or self._closed.is_set():
                    return self._end(job)
            try:
                if not job.stop.is_set() and self._has_secrets(job):
                    self._run_workers(job)
            finally:
                self._slots.release()
        finally:
            with self._state.lock:
                self._state.free_gpus[job.group] = self._state.free_gpus.get(job.group, 0) + gpus
        return self._end(job)

    def _wait_for_gpus(self, job: PlayedJob) -> int:
        shapes = {one["metadata"]["id"]: one["spec"] for one in self._state.shapes}
        each = int(shapes.get(job.spec.get("resource_shape"), {}).get("accelerator_num") or 0)
        needed = each * len(job.workers)
        while needed and not job.stop.is_set() and not self._closed.is_set():
            with self._state.lock:
                if self._state.free_gpus.get(job.group, 0) >= needed:
                    self._state.free_gpus[job.group] -= needed
                    return needed
                if job.state != "Queueing":
                    job.turn("Queueing")
            time.sleep(0.05)
        return 0

    def _has_secrets(self, job: PlayedJob) -> bool:
        """Waits for ever where a secret is missing, as a container would."""
        while not job.stop.is_set() and not self._closed.is_set():
            with self._state.lock:
                missing = [
                    name for name in _secret_names(job.spec) if name not in self._state.secrets
                ]
            if not missing:
                return True
            for worker in job.workers:
                message = f"secret {missing[0]} not found"
                worker.issue = {"reason": "CreateContainerConfigError", "message": message}
            time.sleep(0.05)
        return False

    def _run_workers(self, job: PlayedJob) -> None:
        processes = [(worker, self._spawn(job, worker)) for worker in job.workers]
        with self._state.lock:
            job.ready = len(processes)
            job.turn("Running")
        asked_at = 0.0
        while any(process.poll() is None for _, process in processes):
            failed = [one for _, one in processes if one.poll() not in (None, 0)]
            if (failed or job.stop.is_set()) and not asked_at:
                asked_at = time.monotonic()
                if job.stop.is_set():
                    job.turn("Stopping")
                for _, process in processes:
                    if process.poll() is None:
                        process.terminate()  # the first process alone, as in a container
            if asked_at and time.monotonic() - asked_at > self.grace:
                for _, process in processes:
                    _kill(process.pid)
            time.sleep(0.02)
        for worker, process in processes:
            worker.exit_code = process.wait()
            _kill(process.pid)  # what it left behind goes with its container
            worker.ended.wait(10)
            worker.phase = "Failed" if worker.exit_code else "Succeeded"
            self._processes.discard(process.pid)

    def _spawn(self, job: PlayedJob, worker: Worker) -> subprocess.Popen[bytes]:
        folder = self._state.root / "workers" / worker.id
        folder.mkdir(parents=True)
        process = subprocess.Popen(
            job.spec["container"]["command"],
            env=self._environment(job, worker, folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes.add(process.pid)
        worker.pid, worker.phase, worker.issue = process.pid, "Running", None
        threading.Thread(target=_collect, args=(process, worker), daemon=True).start()
        return process

    def _environment(self, job: PlayedJob, worker: Worker, folder: Path) -> dict[str, str]:
        env = {"PATH": _PATH, "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
        env |= {
            "LEPTON_JOB_NAME": job.id,
            "LEPTON_WORKSPACE_ID": "of-the-platform",
            "LEPTON_JOB_WORKER_INDEX": str(worker.rank),
            "LEPTON_JOB_TOTAL_WORKERS": str(len(job.workers)),
            "LEPTON_JOB_SERVICE_PREFIX": job.id,
            "LEPTON_JOB_WORKER_PREFIX": job.id,
            "LEPTON_JOB_WORKER_HOSTNAME_PREFIX": job.id,
            "LEPTON_SUBDOMAIN": f"{job.id}-job-svc",
            "LEPTON_JOB_FAILURE_COUNT": "0",
        }
        for one in job.spec.get("envs") or ():
            value = one.get("value")
            if value is None:
                value = self._state.secrets[one["value_from"]["secret_name_ref"]]
            env[one["name"]] = self._translated(job, value)
        return env

    def _translated(self, job: PlayedJob, value: str) -> str:
        """Paths of mounts are folders here."""
        for mount in job.spec.get("mounts") or ():
            target = mount["mount_path"]
            if value == target or value.startswith(f"{target}/"):
                name = mount["from"].partition(":")[2] or "node-local"
                folder = self._state.volume(name) / mount["path"].strip("/")
                folder.mkdir(parents=True, exist_ok=True)
                return str(folder) + value.removeprefix(target)
        return value

    def _end(self, job: PlayedJob) -> None:
        with self._state.lock:
            job.ready = 0
            job.completed = time.time()
            codes = [worker.exit_code for worker in job.workers]
            if job.stop.is_set():
                if not job.archived:
                    job.turn("Stopped")
                return
            job.failed = sum(1 for code in codes if code)
            job.succeeded = sum(1 for code in codes if code == 0)
            job.turn("Failed" if job.failed else "Completed")
            if job.failed and job.analysis is None:
                job.analysis = {
                    "err_class": "ERR_PROGRAM",
                    "suggestion": "Check the logs of the job.",
                    "job_failure_by_node_event": [],
                    "log_streams": [],
                }


def _collect(process: subprocess.Popen[bytes], worker: Worker) -> None:
    """The output of a process, in lines; some that came together have one time."""
    assert process.stdout is not None
    held = b""
    while piece := os.read(process.stdout.fileno(), 65536):
        now = time.time_ns()
        *whole, held = (held + piece).split(b"\n")
        worker.lines += [
            (now + number // 50, line.decode("utf-8", "replace"))
            for number, line in enumerate(whole)
        ]
    if held:
        worker.lines.append((time.time_ns(), held.decode("utf-8", "replace")))
    process.stdout.close()
    worker.ended.set()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _secret_names(spec: dict[str, Any]) -> list[str]:
    found = [(one.get("value_from") or {}).get("secret_name_ref") for one in spec.get("envs") or ()]
    return [name for name in found if name]
