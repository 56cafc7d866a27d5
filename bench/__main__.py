"""`python -m bench [case ...]`: take the figures, print them, write them to build/bench."""

from __future__ import annotations

import argparse
import compileall
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import tao_sdk
from bench import (
    docker_cases,
    job_cases,
    kubernetes_cases,
    report,
    runner_cases,
    slurm_cases,
    start_cases,
    status_cases,
    store_cases,
    transfer_cases,
)
from bench.harness import Case, Result, measure
from bench.peers import PEERS, SERVERS, leave_out, set_up
from bench.place import QUICK, Place, Sizes

OUTPUT = Path("build") / "bench"

# The quiet ones first: those that load the machine would be felt by their successors.
CASES: dict[str, Callable[[Place], AbstractContextManager[Case]]] = {
    "import": start_cases.importing,
    "cli": start_cases.command_line,
    "submit": job_cases.submit_latency,
    "start": job_cases.start_latency,
    "status": status_cases.status_of_many,
    "newest": store_cases.newest_of_many,
    "writers": store_cases.many_writers,
    "burst": job_cases.burst,
    "docker_start": docker_cases.docker_start,
    "docker_sweep": docker_cases.docker_sweep,
    "docker_log": docker_cases.docker_log,
    "slurm_submit": slurm_cases.slurm_submit,
    "slurm_refresh": slurm_cases.slurm_refresh,
    "slurm_cancel": slurm_cases.slurm_cancel,
    "kubernetes_import": kubernetes_cases.kubernetes_import,
    "kubernetes_submit": kubernetes_cases.kubernetes_submit,
    "kubernetes_refresh": kubernetes_cases.kubernetes_refresh,
    "kubernetes_running": kubernetes_cases.kubernetes_running,
    "kubernetes_distant": kubernetes_cases.kubernetes_distant,
    "kubernetes_watch": kubernetes_cases.kubernetes_watch,
    "runner_start": runner_cases.runner_start,
    "command_size": runner_cases.command_size,
    "many_down": transfer_cases.many_down,
    "many_up": transfer_cases.many_up,
    "large_down": transfer_cases.large_down,
    "large_up": transfer_cases.large_up,
    "distant_down": transfer_cases.distant_down,
    "distant_up": transfer_cases.distant_up,
    "memory_many": transfer_cases.memory_of_many,
    "memory_large": transfer_cases.memory_of_large,
}
TRANSFERS = (
    "many_down",
    "many_up",
    "large_down",
    "large_up",
    "distant_down",
    "distant_up",
    "memory_many",
    "memory_large",
)
DOCKER = ("docker_start", "docker_sweep", "docker_log")
SLURM = ("slurm_submit", "slurm_refresh", "slurm_cancel")
KUBERNETES = (
    "kubernetes_import",
    "kubernetes_submit",
    "kubernetes_refresh",
    "kubernetes_running",
    "kubernetes_distant",
    "kubernetes_watch",
)
GROUPS = {
    "docker": DOCKER,
    "slurm": SLURM,
    "kubernetes": KUBERNETES,
    "transfers": TRANSFERS,
    "runner": ("runner_start", "command_size", *TRANSFERS),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    known = [*CASES, *GROUPS]
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(known)}")
    parser.add_argument("--no-peers", action="store_true", help="measure only ourselves")
    parser.add_argument("--quick", action="store_true", help="smaller files, fewer rounds")
    wanted = parser.parse_args()
    names = [case for name in wanted.cases or CASES for case in GROUPS.get(name, (name,))]
    if unknown := set(names) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    # Servers and large files are cleared away, too, when somebody ends the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    _keep_bytecode()
    if wanted.no_peers:
        peers = leave_out(PEERS, "left out with --no-peers")
    else:
        peers = set_up(PEERS, OUTPUT)
    if set(names) & set(TRANSFERS):
        peers |= set_up(SERVERS, OUTPUT)
    sizes = QUICK if wanted.quick else Sizes()
    facts = report.machine()
    results = run(names, lambda folder: Place(folder, peers, sizes))
    print(report.write(OUTPUT, facts, peers, results))


def run(names: Sequence[str], place: Callable[[Path], Place]) -> list[Result]:
    """Measure these cases, each in a folder of its own."""
    results = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="tao-bench-") as folder:
            # Jobs and stores of the measurement, never the user's own.
            os.environ["TAO_SDK_STATE_DIR"] = folder
            load = os.getloadavg()[0]
            with CASES[name](place(Path(folder))) as case:
                results.append(Result(name, case, measure(case), load))
    return results


def _keep_bytecode() -> None:
    """An installed package is compiled; so must be what is measured."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(tao_sdk.__file__).parent, quiet=2)


if __name__ == "__main__":
    main()
