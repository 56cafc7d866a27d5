"""What the SLURM cases stand on: a cluster of their own behind ssh, with everything counted.

A round trip is a session that a login host began; a process is an `ssh`, `scp` or `sftp` that the
client started. Both are counted from outside, the same for everybody.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Sample

if TYPE_CHECKING:
    from lab.slurm import SlurmLab

ROUND_TRIPS, PROCESSES = "round trips", "ssh processes"
CLOSED = "closed"
"""The partition that takes jobs and never starts one."""
ACCOUNT = "taoaccount"
_KEEP_SECONDS = 600
_LONGEST_SECONDS = 120


@dataclass(frozen=True)
class Client:
    """The cluster as one contender sees it: a results folder and a counting `ssh` of its own."""

    lab: SlurmLab | None
    variables: dict[str, str] = field(default_factory=dict)
    _started: Path = Path()

    def counted(self, work: Callable[[], float]) -> Sample:
        """Do what tells its own time, and count what went over ssh meanwhile."""
        assert self.lab is not None
        sessions, processes = self.lab.command_log.sessions, self._started.stat().st_size
        seconds = work()
        return Sample(
            seconds,
            {
                ROUND_TRIPS: self.lab.command_log.sessions - sessions,
                PROCESSES: self._started.stat().st_size - processes,
            },
        )


@dataclass(frozen=True)
class Bed:
    """A cluster, or why there is none."""

    folder: Path
    lab: SlurmLab | None = None
    absent: str = ""

    def client(self, name: str) -> Client:
        if self.lab is None:
            return Client(None)
        programs, started = self.folder / f"{name}-bin", self.folder / f"{name}-started"
        programs.mkdir()
        started.touch()
        for program in ("ssh", "scp", "sftp"):
            _write_program(
                programs / program,
                f"printf . >> {shlex.quote(str(started))}\n"
                f'exec {_find(program)} -F {shlex.quote(str(self.lab.ssh_config))} "$@"\n',
            )
        variables = {
            **self.lab.environment(),
            "SLURM_ACCOUNT": ACCOUNT,
            "SLURM_PARTITION": CLOSED,
            "SLURM_BASE_RESULTS_DIR": str(self.users_folder(name)),
            "PATH": f"{programs}:{self.lab.login.client_path}",
        }
        return Client(self.lab, variables, started)

    def beside_sbatch(self) -> dict[str, str]:
        """For a tool that runs where `sbatch` is: it submits as the user, too."""
        if self.lab is None:
            return {}
        programs = self.folder / "slurm-bin"
        programs.mkdir()
        user = shlex.quote(self.lab.user)
        become = f"setpriv --reuid {user} --regid {user} --clear-groups --"
        _write_program(programs / "sbatch", f'exec {become} {_find("sbatch")} "$@"\n')
        path = f"{programs}:{self.lab.login.client_path}"
        return {"SLURM_CONF": self.lab.cluster.environment["SLURM_CONF"], "PATH": path}

    def users_folder(self, name: str) -> Path:
        """A new folder of the user on the shared file system."""
        assert self.lab is not None
        made = self.lab.shared / name
        made.mkdir()
        shutil.chown(made, self.lab.user)
        return made


class BareSsh:
    """OpenSSH without anything around it, on one login host."""

    def __init__(self, bed: Bed) -> None:
        assert bed.lab is not None
        self._words = ["ssh", "-F", str(bed.lab.ssh_config), "-o", "BatchMode=yes"]
        self._host = bed.lab.hosts[0]
        self._shared = [
            *("-o", "ControlMaster=auto", "-o", f"ControlPersist={_KEEP_SECONDS}"),
            # In a folder whose path is short: that of a socket has at most 108 characters.
            *("-o", f"ControlPath={bed.lab.login.folder}/%C"),
        ]

    def run(self, command: str, *, stdin: str = "", connects: bool = False) -> str:
        """What a command prints; over the open connection, or with one of its own."""
        way = [] if connects else self._shared
        done = subprocess.run(
            [*self._words, *way, self._host, command],
            input=stdin,
            stdout=subprocess.PIPE,
            # Not a pipe: the connection that stays open would keep it.
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_LONGEST_SECONDS,
            check=True,
        )
        return done.stdout.strip()

    def submit(self) -> str:
        """Slurm's number of a job that waits for ever."""
        script = f"#!/bin/sh\n#SBATCH --partition={CLOSED} --output=/dev/null\ntrue\n"
        return self.run("sbatch --parsable", stdin=script)

    def timed_submit(self) -> Sample:
        began = time.perf_counter()
        self.submit()
        return Sample(time.perf_counter() - began)

    def timed_cancel(self) -> Sample:
        number = self.submit()
        began = time.perf_counter()
        self.run(f"scancel {number}")
        return Sample(time.perf_counter() - began)

    def timed_states(self) -> Sample:
        began = time.perf_counter()
        self.run("squeue -h -r -t all -o '%i %T'")
        return Sample(time.perf_counter() - began)

    def timed_state_of_each(self, numbers: Sequence[str], *, connects: bool) -> float:
        began = time.perf_counter()
        told = {self.run(f"squeue -h -o %T -j {one}", connects=connects) for one in numbers}
        took = time.perf_counter() - began
        if told != {"PENDING"}:
            raise AssertionError(f"a job of a closed partition waits: {told}")
        return took


@contextmanager
def slurm_bed(folder: Path) -> Iterator[Bed]:
    """A cluster that nobody else uses; without the test lab nobody takes part."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    with ExitStack() as ending:
        try:
            import pytest

            from lab.slurm import private_cluster, slurm_lab
        except ImportError as error:
            yield Bed(folder, absent=f"the test lab cannot be loaded: {error}")
            return
        try:
            cluster = ending.enter_context(private_cluster())
        except pytest.skip.Exception as skipped:
            yield Bed(folder, absent=str(skipped))
            return
        yield Bed(folder, ending.enter_context(slurm_lab(cluster)))


def _write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(0o755)


def _find(program: str) -> str:
    found = shutil.which(program)
    assert found, f"the lab has {program}"
    return shlex.quote(found)
