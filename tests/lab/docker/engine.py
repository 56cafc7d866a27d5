"""Starting and ending dockerd."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lab.packages import PATH
from lab.processes import kill, wait_for_end

# An engine that was killed clears away what its hundreds of containers left before it answers.
_READY_SECONDS = 300


@dataclass(frozen=True)
class Engine:
    """A running engine."""

    folder: Path
    pool: str = ""
    """The addresses of its networks."""

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def log(self) -> Path:
        return self.folder / "dockerd.log"

    def docker(self, *words: str, check: bool = True) -> str:
        """Run the Docker command line against this engine."""
        done = subprocess.run(
            ["docker", "-H", self.url, *words], capture_output=True, text=True, timeout=120
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    @property
    def alive(self) -> bool:
        if not self.socket.exists():
            return False
        words = ["docker", "-H", self.url, "version"]
        try:
            return not subprocess.run(words, capture_output=True, timeout=60).returncode
        except subprocess.TimeoutExpired:  # it listens before it answers
            return False

    def start(self, *options: str, stub: bool = True) -> None:
        """Start dockerd in a session of its own and wait until it answers.

        Without the stub it is an engine on a machine that has no GPUs.
        """
        (self.folder / "bin").mkdir(parents=True, exist_ok=True)
        hook = self.folder / "bin" / "nvidia-container-runtime-hook"
        hook.unlink(missing_ok=True)
        if stub:
            hook.write_text("#!/bin/sh\nexit 0\n")
            hook.chmod(0o755)
        words = [
            *("dockerd", "--data-root", str(self.folder / "data")),
            *("--exec-root", str(self.folder / "exec"), "-p", str(self.folder / "pid")),
            *("-H", self.url, "--add-runtime", "nvidia=runc"),
            *("--bridge", "none", "--iptables=false", "--ip-masq=false", "--ip-forward=false"),
            *("--default-address-pool", f"base={self.pool},size=24"),
            *options,
        ]
        with self.log.open("ab") as log:
            subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": f"{hook.parent}:{PATH}"},
                start_new_session=True,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self.alive:
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def kill(self) -> None:
        """End dockerd and its containerd at once; containers are not asked and go on."""
        inner = self.folder / "exec" / "containerd" / "containerd.pid"
        for pid in (self.pid, int(inner.read_text())):
            kill(pid)  # or it has gone with the other one
            wait_for_end(pid)
        # Its number may be taken for a living process where nobody collects the dead.
        inner.unlink()
        for name in ("pid", "docker.sock"):
            (self.folder / name).unlink(missing_ok=True)

    def stop(self) -> None:
        """End dockerd."""
        if not (self.folder / "pid").exists():
            return
        pid = self.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        wait_for_end(pid)

    def remove_all(self, *filters: str) -> None:
        """Remove containers, running or not."""
        words = [word for text in filters for word in ("--filter", text)]
        found = self.docker("ps", "-aq", *words).split()
        for start in range(0, len(found), 100):
            self.docker("rm", "-f", "-v", *found[start : start + 100], check=False)


def discard(folder: Path) -> None:
    """Remove the folder of an engine that has ended."""
    # What a killed engine left mounted would keep the folder from being removed.
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split(" ")[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)
