"""A cluster for work by hand: `python -m lab.KIND up`, with `--keep` until `down`."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from lab.packages import cache
from lab.processes import lives, wait_for_end, wait_until

_TESTS = Path(__file__).parents[1]

Cluster = Callable[[argparse.Namespace], AbstractContextManager[Mapping[str, str]]]
"""Has the cluster that is asked for while it is open, and says by what variables to find it."""


def parser(kind: str, description: str | None, *actions: str) -> argparse.ArgumentParser:
    """What every kind of cluster is asked for, and more actions."""
    made = argparse.ArgumentParser(
        prog=f"python -m lab.{kind}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("action", choices=(*actions, "up", "down"))
    made.add_argument("--keep", action="store_true", help="leave it running")
    made.add_argument("--name", default="manual", help="one cluster for each name")
    return made


def run(kind: str, asked: argparse.Namespace, cluster: Cluster) -> None:
    """Do what is asked of the clusters of this kind, whose own part is `cluster`."""
    holder = _Holder(kind, asked.name)
    if asked.action == "down":
        holder.end()
    elif asked.keep:
        holder.start()
    else:
        _hold(asked, cluster, holder.exports)


def _hold(asked: argparse.Namespace, cluster: Cluster, exports: Path) -> None:
    """Have a cluster until this process is told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with cluster(asked) as variables:
        text = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        exports.write_text(text)
        print(text, flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending the cluster", flush=True)
        finally:
            exports.unlink()


class _Holder:
    """A process of its own that holds the cluster of this name."""

    def __init__(self, kind: str, name: str) -> None:
        folder = cache() / kind
        folder.mkdir(exist_ok=True)
        self._module = f"lab.{kind}"
        self._pid = folder / f"{name}.pid"
        self._log = folder / f"{name}.log"
        self.exports = folder / f"{name}.env"

    def start(self) -> None:
        """Let it hold what this process was asked for."""
        self.end()
        words = [word for word in sys.argv[1:] if word != "--keep"]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", self._module, *words],
                cwd=_TESTS,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._pid.write_text(str(process.pid))

        def is_ready() -> bool:
            assert lives(process.pid), self._log.read_text()
            return self.exports.exists()

        wait_until(is_ready, f"the cluster does not come up: see {self._log}", 180)
        print(self.exports.read_text())

    def end(self) -> None:
        if self._pid.exists():
            pid = int(self._pid.read_text())
            if lives(pid):
                os.kill(pid, signal.SIGTERM)
                wait_for_end(pid)
            self._pid.unlink()
