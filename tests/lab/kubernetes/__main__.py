"""A cluster for work by hand.

python -m lab.kubernetes build                    # have the programs; minutes
python -m lab.kubernetes up                       # two real nodes, until Ctrl-C
python -m lab.kubernetes up --control-plane       # none
python -m lab.kubernetes up --keep                # until `python -m lab.kubernetes down`
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
from lab.kubernetes import (
    CONTROL_PLANE,
    WITH_NODES,
    KubernetesLab,
    Namespace,
    programs,
    shared_cluster,
)
from lab.slurm.processes import lives, wait_until

_TESTS = Path(__file__).parents[2]


def main() -> None:
    asked = _arguments()
    if asked.action == "build":
        print(programs.build())
    elif asked.action == "down":
        _down(asked.name)
    elif asked.keep:
        _keep(asked.name)
    else:
        _hold(asked)


def _hold(asked: argparse.Namespace) -> None:
    """Have a cluster until this process is told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    variant = CONTROL_PLANE if asked.control_plane else WITH_NODES
    with (
        shared_cluster(variant, asked.name) as cluster,
        KubernetesLab(cluster).namespace() as namespace,
    ):
        _exports_of(asked.name).write_text(_exports(namespace))
        print(_exports(namespace), flush=True)
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
            [sys.executable, "-m", "lab.kubernetes", *words],
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

    wait_until(is_ready, f"the cluster does not come up: see {_log_of(name)}", 180)
    print(_exports_of(name).read_text())


def _down(name: str) -> None:
    if _pid_of(name).exists():
        holder = int(_pid_of(name).read_text())
        if lives(holder):
            os.kill(holder, signal.SIGTERM)
            wait_until(lambda: not lives(holder), "the cluster does not end")
        _pid_of(name).unlink()


def _exports(namespace: Namespace) -> str:
    cluster = namespace.cluster
    variables = {
        "KUBECONFIG": str(namespace.kubeconfig()),
        "TAO_LAB_ADMIN_KUBECONFIG": str(namespace.kubeconfig("admin")),
        "TAO_LAB_NAMESPACE": namespace.name,
        "TAO_LAB_CLUSTER_FOLDER": str(cluster.folder),
        "PATH": f"{Path(cluster.programs['kubectl']).parent}:{os.environ['PATH']}",
    }
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _pid_of(name: str) -> Path:
    return _folder() / f"{name}.pid"


def _log_of(name: str) -> Path:
    return _folder() / f"{name}.log"


def _exports_of(name: str) -> Path:
    return _folder() / f"{name}.env"


def _folder() -> Path:
    folder = cache() / "kubernetes"
    folder.mkdir(exist_ok=True)
    return folder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.kubernetes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("build", "up", "down"))
    parser.add_argument("--keep", action="store_true", help="leave it running")
    parser.add_argument("--name", default="manual", help="one cluster for each name")
    parser.add_argument("--control-plane", action="store_true", help="without real nodes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
