"""What a program and a command pay before they do anything."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import Case, Contender, Sample, timed
from bench.isolation import ISOLATED, clean_environment
from bench.peers import OURS, Environment
from bench.place import Place


@contextmanager
def importing(place: Place) -> Iterator[Case]:
    peers = place.peers

    def program(environment: Environment, name: str, code: str) -> Contender:
        return _start(place, environment, name, str(environment.python), ISOLATED, "-c", code)

    yield Case(
        "import",
        "A new interpreter that imports the package and ends. Ours loads a name when it is first "
        "used, hence two rows.",
        [
            program(OURS, "import tao_sdk", "import tao_sdk"),
            program(OURS, "from tao_sdk import LocalSDK", "from tao_sdk import LocalSDK"),
            program(peers["reference"], "import tao_sdk (the reference)", "import tao_sdk"),
            program(peers["submitit"], "import submitit", "import submitit"),
            program(peers["torchx"], "import torchx.runner", "import torchx.runner"),
        ],
        floor=program(OURS, "python -c pass", "pass"),
    )


@contextmanager
def command_line(place: Place) -> Iterator[Case]:
    def version(environment: Environment, command: str) -> Contender:
        script = str(environment.script(command))
        return _start(place, environment, f"{command} --version", script, "--version")

    yield Case(
        "command line",
        "The installed command, asked for its version. The reference has no command.",
        [version(OURS, "tao-sdk"), version(place.peers["torchx"], "torchx")],
        floor=_start(place, OURS, "python -c pass", str(OURS.python), ISOLATED, "-c", "pass"),
    )


def _start(place: Place, environment: Environment, name: str, *command: str) -> Contender:
    variables = clean_environment(place.folder)

    def run() -> Sample:
        return timed(
            lambda: subprocess.run(
                command, cwd=place.folder, env=variables, stdout=subprocess.DEVNULL, check=True
            )
        )

    return Contender(name, run, peer=environment.peer, absent=environment.absent)
