"""`python -m bench [case ...]`: take the figures, print them, write them to build/bench."""

from __future__ import annotations

import argparse
import compileall
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import tao_sdk
from bench import job_cases, report, start_cases, status_cases, store_cases
from bench.harness import Case, Result, measure
from bench.peers import PEERS, leave_out, set_up
from bench.place import Place

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
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)}")
    parser.add_argument("--no-peers", action="store_true", help="measure only ourselves")
    wanted = parser.parse_args()
    names = wanted.cases or list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    _keep_bytecode()
    if wanted.no_peers:
        peers = leave_out(PEERS, "left out with --no-peers")
    else:
        peers = set_up(PEERS, OUTPUT)
    facts = report.machine()
    results = run(names, lambda folder: Place(folder, peers))
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
