"""Which process is that, and is it still the same one?

A process id alone is reused by the kernel; together with the process's start time and the
machine (boot and pid namespace) it names one process for ever. Zombies count as gone: nothing
of them runs any more.

Every supervisor of a local job imports this module, so it imports little itself.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

_LINUX = sys.platform.startswith("linux")


class Fate(Enum):
    """What can be known about a process from here."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


_NUMBER = re.compile("[0-9]{1,9}")


class ProcessIdentity(NamedTuple):
    """One process of one machine."""

    host: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> ProcessIdentity:
        return cls(this_host(), os.getpid(), _own_start_time())

    @classmethod
    def parse(cls, text: str) -> ProcessIdentity | None:
        """Read back `str(identity)`; None for anything else."""
        parts = text.rsplit("|", 2)
        if len(parts) != 3 or not _NUMBER.fullmatch(parts[1]):
            return None
        return cls(parts[0], int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.host}|{self.pid}|{self.started}"

    @property
    def same_boot(self) -> bool:
        """Whether this process belongs to this machine since its last start (any namespace)."""
        boot = _parts(self.host).boot
        return bool(boot) and boot == _parts(this_host()).boot

    @property
    def of_earlier_boot(self) -> bool:
        """Whether this machine was restarted since."""
        return fate_by_host(self.host, this_host()) is Fate.GONE

    @property
    def fate(self) -> Fate:
        """Whether exactly this process still runs, as far as this machine can tell."""
        known = fate_by_host(self.host, this_host())
        if known is None:
            return Fate.ALIVE if self.alive else Fate.GONE
        return known

    @property
    def alive(self) -> bool:
        """True while exactly this process runs; only meaningful on its own machine."""
        return bool(self.started) and start_time(self.pid) == self.started


class _Parts(NamedTuple):
    """What `this_host()` consists of."""

    machine: str
    boot: str
    namespace: str


def _parts(host: str) -> _Parts:
    machine, _, rest = host.partition("/")
    boot, _, namespace = rest.partition("/")
    return _Parts(machine, boot, namespace)


def is_abandoned(owner: str, silent_seconds: float, lease_seconds: float) -> bool:
    """Whether the process that `owner` names has ended, as far as can be seen from here.

    One that cannot be examined from here counts as ended once it was silent for longer than its
    lease; an empty name stands for one that has given up.
    """
    process = ProcessIdentity.parse(owner)
    if process is None:
        return True
    fate = process.fate
    return silent_seconds > lease_seconds if fate is Fate.UNKNOWN else fate is Fate.GONE


def fate_by_host(host: str, here: str) -> Fate | None:
    """What the host of a process alone tells about it; None: `here` must look at the process."""
    theirs, ours = _parts(host), _parts(here)
    if theirs == ours:
        return None
    if theirs.machine != ours.machine:
        return Fate.UNKNOWN
    if not theirs.boot:
        return None  # written by a version that recorded no boot on this system
    # The same boot in another pid namespace: its process id means nothing here.
    return Fate.UNKNOWN if theirs.boot == ours.boot else Fate.GONE


@functools.lru_cache(maxsize=1)
def this_host() -> str:
    """This machine, boot and pid namespace: where a process id means something."""
    name = os.uname().nodename
    if not _LINUX:
        boot = parse_boot(_sysctl("kern.bootsessionuuid"), _sysctl("kern.boottime"))
        return f"{name}/{boot}/" if boot else name
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{name}{_machine_id()}/{boot[:8]}/{Path('/proc/self/ns/pid').readlink()}"


def parse_boot(session: str, boot_time: str) -> str:
    """The name of a boot, from sysctl's `kern.bootsessionuuid` (macOS) or `kern.boottime` (BSD:
    `{ sec = 1763490000, usec = 12 } Tue Nov 18 ...`); "" when both are missing.
    """
    found = re.search(r"sec = (\d+)", boot_time)
    return session.strip()[:8] or (found.group(1) if found else "")


@functools.lru_cache(maxsize=1)
def _own_start_time() -> str:
    return start_time(os.getpid()) or ""


os.register_at_fork(after_in_child=_own_start_time.cache_clear)


def is_this_machine(host: str) -> bool:
    """Whether an earlier or foreign `this_host()` names this machine, whatever its boot."""
    return _parts(host).machine == _parts(this_host()).machine


def _machine_id() -> str:
    """Tells machines of the same name apart, where the system has such an id."""
    try:
        return "-" + Path("/etc/machine-id").read_text(encoding="ascii").strip()[:8]
    except FileNotFoundError:
        return ""


def start_time(pid: int) -> str | None:
    """When the process started, in the kernel's own terms; None when it is gone or a zombie."""
    if pid <= 0:
        return None
    return _start_time_from_proc(pid) if _LINUX else _start_time_from_ps(pid)


def _start_time_from_proc(pid: int) -> str | None:
    try:
        # Not through `Path`: a watcher asks about thousands of processes, again and again.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = stat.rpartition(b")")[2].split(None, 20)
    state, ticks = fields[0], fields[19]
    return None if state in (b"Z", b"X") else ticks.decode()


def _start_time_from_ps(pid: int) -> str | None:
    state, _, started = _ps("-o", "stat=,lstart=", "-p", str(pid)).strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def session_of(pid: int) -> int | None:
    """The session to which a process belongs; None when it is gone."""
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def session_members(session: int) -> list[int]:
    """The running processes of a session, whatever groups they are in. Zombies do not count.

    A signal 0 could not tell: it reaches zombies, too, which stay for ever in containers whose
    first process does not reap them.
    """
    found = [pid for pid in _all_processes() if session_of(pid) == session]
    return [pid for pid in found if start_time(pid) is not None]


def signal_group(group: int, number: int) -> None:
    """Signal every process of a group that may be signalled."""
    # Gone already, or (a job that uses sudo) another user's: nothing that we can do about it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def signal_if(is_meant: Callable[[], bool], pid: int, number: int) -> bool:
    """Signal a process if it is the one that is meant; False when it is not, or gone.

    The process is pinned before the question is asked: should its number become another's in
    between, the signal goes nowhere.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):  # another system, or a container that forbids the call
        if is_meant():
            os.kill(pid, number)
            return True
        return False
    try:
        if not is_meant():
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def has_variable(pid: int, name: str, value: str) -> bool:
    """Was this process started with that environment variable?"""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # gone, or not ours
    return f"{name}={value}".encode() in environment.split(b"\0")


def _all_processes() -> list[int]:
    names = os.listdir("/proc") if _LINUX else _ps("-A", "-o", "pid=").split()  # noqa: PTH208 - thousands of names, each looked at once
    return [int(name) for name in names if name.isdigit()]


def _sysctl(name: str) -> str:
    return _output("sysctl", "-n", name)


def _ps(*words: str) -> str:
    return _output("ps", *words)


def _output(*words: str) -> str:
    """What a program of the system prints; "" when it is missing or refuses."""
    import subprocess

    # Times must read the same for every caller, whatever its zone and language.
    plain = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/bin:/usr/bin:/sbin:/usr/sbin"}
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=plain)
    except FileNotFoundError:
        return ""
    return done.stdout
