"""The object store that everybody talks to, and a long way to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.child import processor_seconds
from bench.isolation import ISOLATED
from bench.peers import Environment

BUCKET = "bench"
ACCESS_KEY, SECRET_KEY = "BENCHACCESSKEY01", "bench/secret+key/0123456789abcdefghijkl"

_PATIENCE_SECONDS = 30.0
_PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Server:
    """A store with one bucket, which is a folder that can be filled and read directly."""

    url: str
    bucket: Path = Path()
    processes: tuple[int, ...] = ()
    """All that an answer takes on the way."""

    def processor_seconds(self) -> float:
        return sum(map(processor_seconds, self.processes))

    def variables(self) -> dict[str, str]:
        """How everybody gets there. The keys are those of a store of our own on loopback."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ENDPOINT_URL": self.url,
            "S3_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def rclone_server(environment: Environment, store: Path, folder: Path) -> Iterator[Server]:
    """`rclone serve s3` over a folder with buckets: it checks signatures; objects are files.

    What it says is kept in the other folder.
    """
    port = _free_port()
    command = [
        str(environment.script("rclone")),
        *("serve", "s3", str(store)),
        f"--addr=127.0.0.1:{port}",
        f"--auth-key={ACCESS_KEY},{SECRET_KEY}",
        "--vfs-cache-mode=off",
        "--config=",
    ]
    with _running(command, port, folder) as pid:
        yield Server(f"http://127.0.0.1:{port}", store / BUCKET, (pid,))


@contextmanager
def at_a_distance(server: Server, seconds: float, folder: Path) -> Iterator[Server]:
    """The same server, with so many seconds added to each request."""
    port = _free_port()
    program = str(_PROGRAMS / "latency_proxy.py")
    command = [sys.executable, ISOLATED, program, str(port), server.url, str(seconds)]
    with _running(command, port, folder) as pid:
        yield Server(f"http://127.0.0.1:{port}", server.bucket, (*server.processes, pid))


@contextmanager
def _running(command: Sequence[str], port: int, folder: Path) -> Iterator[int]:
    said = folder / f"server-{port}.err"
    with open(said, "wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        )
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not answer: {said.read_text()[-2000:]}")
            time.sleep(0.02)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
