"""Jobs of the Docker platform beside docker-py used bare and the reference's DockerSDK.

On the test lab's engine, or on one that DOCKER_HOST names and that has the image.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.driver import Driver
from bench.harness import Case, Contender, Sample
from bench.peers import OURS, Environment
from bench.place import MIB, QUICK, Place
from tao_sdk.job_store import Confirmation, NewJob
from tao_sdk.platforms.docker import DockerSDK

MANY = 1000
QUICK_MANY = 200
LOG_MIB = 1024
QUICK_LOG_MIB = 64
CALLS, JOBS = "API calls", "jobs"
FIRST_LINE, GROWN = "first line (s)", "memory grown (MiB)"
IMAGE = "tao-lab/bash:1"
_AT_ONCE = 200


@contextmanager
def docker_start(place: Place) -> Iterator[Case]:
    """Submit until Running, image present, no mounts."""
    with _engine() as url, ExitStack() as drivers:

        def contender(name: str, environment: Environment, module: str) -> Contender:
            folder = place.folder / f"{module}-{environment.peer or 'ours'}"
            driver = drivers.enter_context(Driver(environment, module, folder, DOCKER_HOST=url))
            return Contender(
                name,
                lambda: Sample(driver.ask("one")),
                peer=environment.peer,
                absent=environment.absent,
            )

        yield Case(
            "Docker: submit until Running",
            "From the call that starts one container until it is known to run.",
            [
                contender("DockerSDK.create_job", OURS, "with_docker_sdk"),
                contender(
                    "DockerSDK.create_job (the reference)",
                    place.peers["reference-docker"],
                    "with_docker_sdk",
                ),
            ],
            floor=contender("docker-py containers.run", OURS, "with_docker_py"),
            rounds=30,
        )


@contextmanager
def docker_sweep(place: Place) -> Iterator[Case]:
    """The states of many containers: as many for everybody, in the same state."""
    count = QUICK_MANY if _is_quick(place) else MANY
    reference = place.peers["reference-docker"]
    with _engine() as url, ExitStack() as ending:
        sdk = DockerSDK(state_file=place.folder / "state.json", docker_host=url)
        ids = _pretend(sdk, count)
        ending.callback(_remove, url, [f"tao-job-{job_id}" for job_id in ids])
        driver = ending.enter_context(
            Driver(reference, "with_docker_sdk", place.folder / "reference", DOCKER_HOST=url)
        )
        if not reference.absent:
            ending.callback(_remove, url, driver.ask("make", count=count))

        def sweep() -> Sample:
            calls = len(sdk.backend.transport.calls)
            began = time.perf_counter()
            statuses = sdk.get_statuses(ids)
            took = time.perf_counter() - began
            if {status.status for status in statuses.values()} != {"Pending"}:
                raise AssertionError("a container that was not started is Pending")
            return Sample(took, {CALLS: len(sdk.backend.transport.calls) - calls, JOBS: count})

        yield Case(
            f"Docker: status of {count:,} jobs",
            f"Of {count:,} containers each that were made and not started. The reference is asked "
            "about one after the other.",
            [
                Contender(f"get_statuses of {count:,}", sweep),
                Contender(
                    f"{count:,} x get_job_status (the reference)",
                    lambda: Sample(driver.ask("sweep"), {JOBS: count}),
                    peer=reference.peer,
                    absent=reference.absent,
                ),
            ],
            rounds=5,
        )


@contextmanager
def docker_log(place: Place) -> Iterator[Case]:
    """A long log, followed: when its first line comes, and what it takes to read all of it."""
    size = QUICK_LOG_MIB if _is_quick(place) else LOG_MIB
    lines = size * 8192  # of 128 bytes each
    with _engine() as url:
        sdk = DockerSDK(state_file=place.folder / "state.json", docker_host=url)

        @contextmanager
        def written() -> Iterator[str]:
            """A job that writes it."""
            command = f"yes {'x' * 127} | head -n {lines}"
            job = sdk.create_job(image=IMAGE, gpu_count=0, command=command)
            yield job.id
            _docker(url, "rm", "-f", f"tao-job-{job.id}")

        def follow() -> Sample:
            with written() as job_id:
                _forget_peak()
                before = _peak_kib()
                began = time.perf_counter()
                stream = sdk.stream_logs(job_id)
                next(stream)
                first = time.perf_counter() - began
                read = 1 + sum(1 for _ in stream)
                took = time.perf_counter() - began
                after = _peak_kib()
            if read != lines:
                raise AssertionError(f"{read} of {lines} lines")
            return Sample(took, {FIRST_LINE: first, GROWN: (after - before) / 1024})

        def take_all() -> Sample:
            with written() as job_id:
                began = time.perf_counter()
                received = _discard_log(url, f"tao-job-{job_id}")
                took = time.perf_counter() - began
            if received < size * MIB:
                raise AssertionError(f"{received} bytes of {size} MiB")
            return Sample(took)

        is_local = url.startswith("unix://")
        yield Case(
            f"Docker: log of {size:,} MiB",
            "Followed while the job writes it, line by line. The floor takes what the daemon "
            "sends, bytes from a socket, and looks at none of it: no reader can be faster.",
            [Contender("stream_logs", follow)],
            floor=Contender("recv from the daemon's socket", take_all) if is_local else None,
            rounds=1,
            warm_ups=0,
        )


def _discard_log(url: str, container: str) -> int:
    """Follow a log to its end; how many bytes came."""
    asked = "follow=true&stdout=true&stderr=true&timestamps=true"
    request = f"GET /containers/{container}/logs?{asked} HTTP/1.1\r\nHost: localhost\r\n"
    buffer, total = bytearray(256 * 1024), 0
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(url.removeprefix("unix://"))
        connection.sendall(f"{request}Connection: close\r\n\r\n".encode())
        while count := connection.recv_into(buffer):
            total += count
    return total


def _forget_peak() -> None:
    """From now on the peak is that of what follows: an earlier case may have needed more."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak_kib() -> int:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1])


def _pretend(sdk: DockerSDK, count: int) -> list[str]:
    """So many jobs in the store, with a container each that was made and not started."""
    intent = sdk.plan(image=IMAGE, command="true", gpu_count=0).intent
    ids = [f"sweep-{number}" for number in range(count)]
    transport = sdk.backend.transport  # type: ignore[attr-defined]  # of this backend, not of all
    for job_id in ids:
        labels = {"tao-toolkit": "true", "tao-sdk-job-id": job_id}
        body = {"Image": IMAGE, "Cmd": ["true"], "Labels": labels}
        body["HostConfig"] = {"NetworkMode": "none"}  # type: ignore[assignment]  # JSON, of whatever shape
        transport.api.create(body, f"tao-job-{job_id}")
    new = [NewJob(job_id, "net", "train", "", "docker", "token", "owner") for job_id in ids]
    sdk.store.begin_submissions(new)
    sdk.store.confirm_submissions(
        [Confirmation(job_id, f"tao-job-{job_id}", intent) for job_id in ids]
    )
    return ids


def _is_quick(place: Place) -> bool:
    return place.sizes == QUICK


@contextmanager
def _engine() -> Iterator[str]:
    named = os.environ.get("DOCKER_HOST")
    if named:
        yield named
        return
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from lab.docker import shared_engine

    with shared_engine() as engine:
        networks = _docker(engine.url, "network", "ls", "--format", "{{.Name}}").split()
        if "tao_default" not in networks:
            _docker(engine.url, "network", "create", "tao_default")
        yield engine.url


def _remove(url: str, names: Sequence[str]) -> None:
    for start in range(0, len(names), _AT_ONCE):
        _docker(url, "rm", "-f", *names[start : start + _AT_ONCE])


def _docker(url: str, *words: str) -> str:
    done = subprocess.run(["docker", "-H", url, *words], capture_output=True, text=True, check=True)
    return done.stdout
