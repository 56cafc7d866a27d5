"""What the packed command costs before it moves anything: its start, and its size."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import Case, Contender, Sample, timed
from bench.isolation import ISOLATED, clean_environment
from bench.peers import OURS, Environment
from bench.place import Place
from tao_sdk.script_runner import build_entrypoint

BYTES = "bytes"
CONFIG, PASSTHROUGH = "build_entrypoint, config", "build_entrypoint, passthrough"
_PROGRAM = Path(__file__).parent / "programs" / "pack_command.py"
# What tells when the user's command runs, as in the program.
_CLOCK = "date +%s.%N"


@contextmanager
def runner_start(place: Place) -> Iterator[Case]:
    reference = place.peers["reference-runner"]

    def start(
        name: str, includes: str, environment: Environment, command: Callable[[], str]
    ) -> Contender:
        variables = _container(place, environment)
        return Contender(
            name,
            lambda: _until_command(command(), place.folder, variables),
            includes,
            environment.peer,
            environment.absent,
        )

    bare = build_entrypoint(command=_CLOCK)["command"]
    config = build_entrypoint(
        command=f"{_CLOCK} # {{config_path}}",
        specs={"train": {"epochs": 12, "lr": 0.0002}, "results_dir": ""},
        outputs=["results_dir"],
    )["command"]
    theirs = functools.cache(lambda: str(_built_by(reference, "clock")["command"]))
    yield Case(
        "start of the runner",
        "From the start of bash with the packed command to the user's command, with no inputs; "
        "the results are on a mount.",
        [
            start("the packed command, passthrough", "nothing to prepare", OURS, lambda: bare),
            start("the packed command, config", "a small spec is written", OURS, lambda: config),
            start(
                "the packed command, passthrough (the reference)",
                "its pip finds everything installed, and is kept from asking the network",
                reference,
                theirs,
            ),
        ],
        floor=Contender(
            "python3 -c pass",
            lambda: timed(
                lambda: subprocess.run(
                    ["python3", "-c", "pass"], env=_container(place, OURS), check=True
                )
            ),
        ),
        rounds=place.sizes.starts,
    )


@contextmanager
def command_size(place: Place) -> Iterator[Case]:
    def build(name: str, environment: Environment, kind: str) -> Contender:
        def run() -> Sample:
            built = _built_by(environment, kind)
            facts = {BYTES: len(built["command"].encode()), "again (s)": built["again"]}
            return Sample(built["first"], facts)

        return Contender(name, run, peer=environment.peer, absent=environment.absent)

    reference = place.peers["reference"]
    yield Case(
        "size of the command",
        "The time is that of the first build_entrypoint of a process, after the import; `again` "
        "is the second one. The config job has a spec of 60 lines, five inputs in a bucket and "
        "results that go there; passthrough is `nvidia-smi`.",
        [
            build(CONFIG, OURS, "config"),
            build(PASSTHROUGH, OURS, "passthrough"),
            build(f"{CONFIG} (the reference)", reference, "config"),
            build(f"{PASSTHROUGH} (the reference)", reference, "passthrough"),
        ],
        rounds=5,
    )


def _container(place: Place, environment: Environment) -> dict[str, str]:
    """As in a container whose Python is this one."""
    path = f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}"
    return clean_environment(
        place.folder,
        PATH=path,
        TAO_RESULTS_ROOT=str(place.folder / "results"),
        TAO_JOB_ID="bench",
        PIP_NO_INDEX="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )


def _until_command(command: str, folder: Path, variables: Mapping[str, str]) -> Sample:
    began = time.time()
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    return Sample(float(done.stdout.split()[-1]) - began)


def _built_by(environment: Environment, kind: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(environment.python), ISOLATED, str(_PROGRAM), kind],
        capture_output=True,
        text=True,
        check=True,
    )
    built: dict[str, Any] = json.loads(done.stdout)
    return built
