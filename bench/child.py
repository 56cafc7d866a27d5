"""One process, from its start to its end: how long, how much processor time, how much memory."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LONGEST_SECONDS = 600.0
_LOOK_SECONDS = 0.02
_SESSION = 3  # among the fields of /proc/PID/stat after the name
_USER, _SYSTEM = 11, 12


@dataclass(frozen=True)
class Cost:
    """What a process and the children that it waited for needed."""

    seconds: float
    processor_seconds: float
    largest_mib: float
    """The largest of them by itself; never less than what started it."""
    together_mib: float = 0.0
    """All of them at the same moment, shared pages counted once; 0 where nobody looked."""


def run_process(
    command: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    *,
    watches_memory: bool = False,
) -> Cost:
    """Run a command to its end, which must be a success."""
    errors = folder / "child.err"
    with open(errors, "wb") as sink:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=folder,
            env=variables,
            start_new_session=True,
        )
        try:
            with _bounded(process.pid), _memory_of(process.pid, watches_memory) as peak:
                _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        said = errors.read_text(encoding="utf-8", errors="replace").strip()
        raise RuntimeError(
            f"{' '.join(command)[:200]}: exit code {process.returncode}: {said[-2000:]}"
        )
    return Cost(took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, max(peak))


def processor_seconds(pid: int) -> float:
    """What a process has used so far, in the kernel's ticks of (mostly) 10 ms."""
    fields = _stat(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    # The name, in brackets, may have spaces in it.
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()


@contextmanager
def _bounded(session: int) -> Iterator[None]:
    """Nothing that hangs may hang the whole run."""
    timer = threading.Timer(LONGEST_SECONDS, os.killpg, (session, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _memory_of(session: int, watches: bool) -> Iterator[list[float]]:
    """What is looked up fills the list; looking costs time, so only where it is wanted."""
    seen, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_SECONDS):
            seen.append(sum(_proportional_mib(pid) for pid in _members(session)))

    observer = threading.Thread(target=look)
    if watches:
        observer.start()
    try:
        yield seen
    finally:
        over.set()
        if watches:
            observer.join()


def _members(session: int) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                if int(_stat(int(entry.name))[_SESSION]) == session:
                    yield int(entry.name)


def _proportional_mib(pid: int) -> float:
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
