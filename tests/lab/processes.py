"""Every process of a cluster can be found again, however the test run that started it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.packages import PATH, find

_MARK = "TAO_LAB_CLUSTER"


def start(
    folder: Path, log: Path, words: Sequence[str], **variables: str
) -> subprocess.Popen[bytes]:
    """Start a daemon of the cluster in this folder, in a session of its own."""
    program, *rest = words
    with log.open("ab") as output:
        return subprocess.Popen(
            [find(program), *rest],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={"PATH": PATH, "LC_ALL": "C.UTF-8", _MARK: str(folder), **variables},
            start_new_session=True,
        )


def end_all(folder: Path) -> None:
    """End every process of the cluster, and those they started, at once."""
    wait_until(lambda: not _kill(_with_descendants(members(folder))), "processes do not end")


def members(folder: Path) -> set[int]:
    """The daemons of a cluster, and the processes of its jobs that can be told."""
    daemon = f"{_MARK}={folder}".encode()
    configuration = f"SLURM_CONF={folder}/".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                variables = (entry / "environ").read_bytes()
                # slurmstepd throws away what it inherits; a shell with that setting is not ours.
                is_of_job = configuration in variables and (
                    b"SLURM_JOB_ID=" in variables or name_of(int(entry.name)) == "slurmstepd"
                )
                if daemon in variables.split(b"\0") or is_of_job:
                    found.add(int(entry.name))
    return found


def descendants(pid: int) -> set[int]:
    return _with_descendants({pid}) - {pid}


def name_of(pid: int) -> str:
    """What the kernel calls it; "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def lives(pid: int) -> bool:
    """Another process may have started it and not have noticed its end yet: a zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pid: int) -> None:
    wait_until(lambda: not lives(pid), f"process {pid} does not end")


def wait_until(condition: Callable[[], object], message: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.03)


def _kill(pids: set[int]) -> bool:
    """Kill them; says whether there were any."""
    for pid in pids:
        kill(pid)
    return bool(pids)


def _with_descendants(pids: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name, in brackets, may hold spaces.
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = set(pids), list(pids)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
