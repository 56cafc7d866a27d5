"""Starting the lab's cloud, changing its mood, and looking behind its scenes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from lab.brev import program
from lab.docker.engine import Engine, discard
from lab.packages import provide
from lab.sshd import PACKAGES, sshd

_PACKAGES = (*PACKAGES, "util-linux")
_GPUS = 2


class BrevCloud:
    """One test's own account at the lab's Brev."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder = folder
        self.engine = engine
        self._cloud = program.Cloud(str(folder))

    @property
    def path(self) -> str:
        """PATH with the lab's `brev`."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def brev(self, *words: str) -> str:
        """Run the program as a person would."""
        done = subprocess.run(
            [str(self.folder / "bin" / "brev"), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def configure(self, **values: Any) -> None:
        """What the account is like: `api_key`, `version`, `create_flags`."""
        self._cloud.write({**self._cloud.read("config.json"), **values}, "config.json")

    def faults(self, **values: Any) -> None:
        """What goes wrong from now on; nothing without any."""
        self._cloud.write(values, "faults.json")

    @contextlib.contextmanager
    def faulty(self, **values: Any) -> Iterator[None]:
        before = self._cloud.read("faults.json")
        self.faults(**{**before, **values})
        try:
            yield
        finally:
            self.faults(**before)

    # ------------------------------------------------------------------ behind the scenes

    def make(self, name: str) -> None:
        """An instance that is there already."""
        self.brev("create", name, "--type", "g6e.12xlarge", "--detached")

    def names(self) -> set[str]:
        """The instances that there are, whatever anybody says."""
        return {one["name"] for one in self._cloud.instances()}

    def ever_made(self) -> list[str]:
        path = self.folder / "made.log"
        return path.read_text().split() if path.exists() else []

    def home(self, name: str) -> Path:
        return self.folder / "machines" / name / "home"

    def reboot(self, name: str) -> None:
        """Every process on it ends, and it comes up again."""
        one = self._cloud.find(name)
        self._cloud.halt(one)
        self._cloud.boot(one)
        self._cloud.save(one)

    def kill_shells(self, name: str) -> None:
        """Every process on it ends; Docker and its containers do not."""
        one = self._cloud.find(name)
        os.kill(one["init"], 9)
        self._cloud.boot(one)
        self._cloud.save(one)

    def fail(self, name: str) -> None:
        """It breaks: nothing runs on it any more, and Brev says so."""
        one = self._cloud.find(name)
        self._cloud.halt(one)
        one["status"] = "FAILURE"
        self._cloud.save(one)

    def vanish(self, name: str) -> None:
        """As if somebody had deleted it in Brev's console."""
        program.vanish(self._cloud, self._cloud.find(name))

    def requests(self) -> list[list[str]]:
        path = self.folder / "requests.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        for one in self._cloud.instances():
            program.vanish(self._cloud, one)


@contextlib.contextmanager
def brev_cloud(engine: Engine) -> Iterator[BrevCloud]:
    """A cloud with nothing in it."""
    provide(("sshd", "ssh", "scp", "ssh-keygen", "unshare", "nsenter", "flock"), _PACKAGES, "brev")
    # A short path: it is in every command of ssh.
    folder = Path(tempfile.mkdtemp(prefix="tao-brev-"))
    for name in ("instances", "machines", "ssh", "bin", "tools"):
        (folder / name).mkdir(mode=0o700)
    cloud = BrevCloud(folder, engine)
    try:
        with _sshd(folder / "ssh") as port:
            cloud.configure(docker=engine.url, port=port)
            _write_program(
                folder / "bin" / "brev",
                f'exec {sys.executable} -S -E {program.__file__} {folder} "$@"',
            )
            _write_program(folder / "tools" / "nvidia-smi", f"seq 0 {_GPUS - 1}")
            try:
                yield cloud
            finally:
                cloud.close()
    finally:
        discard(folder)


def _sshd(folder: Path) -> AbstractContextManager[int]:
    (folder / "authorized").touch(mode=0o600)
    (folder / "config").touch(mode=0o600)
    return sshd(
        folder,
        *("PermitRootLogin yes", "MaxStartups 200", "UseDNS no"),
        "Subsystem sftp /usr/lib/openssh/sftp-server",
    )


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
