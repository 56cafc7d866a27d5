"""A cluster for work by hand.

python -m lab.slurm up            # until Ctrl-C
python -m lab.slurm up --keep     # until `python -m lab.slurm down`
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from lab.docker.packages import cache
from lab.slurm import LoginVariant, SlurmLab, SlurmVariant, shared_cluster, slurm_lab
from lab.slurm.processes import lives, wait_until

_TESTS = Path(__file__).parents[2]


def main() -> None:
    asked = _arguments()
    if asked.action == "down":
        _down(asked.name)
    elif asked.keep:
        _keep(asked.name)
    else:
        _hold(asked)


def _hold(asked: argparse.Namespace) -> None:
    """Have a cluster until this process is told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    variant = SlurmVariant(accounting=not asked.no_accounting, pyxis=not asked.no_pyxis)
    way_in = LoginVariant(noise=asked.noise)
    with shared_cluster(variant, asked.name) as cluster, slurm_lab(cluster, way_in) as lab:
        _exports_of(asked.name).write_text(_exports(lab))
        print(_exports(lab), flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending the cluster", flush=True)
        finally:
            _exports_of(asked.name).unlink()


def _keep(name: str) -> None:
    """Let a process of its own hold the cluster."""
    _down(name)
    words = [word for word in sys.argv[1:] if word != "--keep"]
    with _log_of(name).open("wb") as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", "lab.slurm", *words],
            cwd=_TESTS,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _pid_of(name).write_text(str(holder.pid))

    def is_ready() -> bool:
        assert lives(holder.pid), _log_of(name).read_text()
        return _exports_of(name).exists()

    wait_until(is_ready, f"the cluster does not come up: see {_log_of(name)}", 120)
    print(_exports_of(name).read_text())


def _down(name: str) -> None:
    if _pid_of(name).exists():
        holder = int(_pid_of(name).read_text())
        if lives(holder):
            os.kill(holder, signal.SIGTERM)
            wait_until(lambda: not lives(holder), "the cluster does not end")
        _pid_of(name).unlink()


def _exports(lab: SlurmLab) -> str:
    variables = {
        **lab.environment(),
        "SLURM_CONF": str(lab.cluster.layout.slurm_conf),
        "PATH": f"{lab.cluster.layout.programs}:{lab.login.client_path}",
    }
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _pid_of(name: str) -> Path:
    return cache() / "slurm" / f"{name}.pid"


def _log_of(name: str) -> Path:
    return cache() / "slurm" / f"{name}.log"


def _exports_of(name: str) -> Path:
    return cache() / "slurm" / f"{name}.env"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.slurm", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--keep", action="store_true", help="leave it running")
    parser.add_argument("--name", default="manual", help="one cluster for each name")
    parser.add_argument("--no-accounting", action="store_true")
    parser.add_argument("--no-pyxis", action="store_true")
    parser.add_argument("--noise", action="store_true", help="a banner and a chatty shell")
    return parser.parse_args()


if __name__ == "__main__":
    main()
