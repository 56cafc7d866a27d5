"""Many files come by several processes: all of them, or an error, and nobody stays behind."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.transfers import below, noise
from lab.wire import Call, Reply, WireServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there processes are forked")

# Downloads in a process of its own, as the runner does. What it does when the first word of a child
# arrives is the last part of its task.
DOWNLOADER = """
import functools, json, os, signal, sys, threading
from tao_sdk.runner import download
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.remote import RemoteFile, Request

files, folder, url, processors, threads, on_first_word, trouble = json.load(sys.stdin)
os.sched_getaffinity = lambda _: range(processors)
children, fork = [], os.fork

def noted_fork():
    if len(children) == {"no child": 0, "one child": 1}.get(trouble):
        raise BlockingIOError(11, "Resource temporarily unavailable")
    child = fork()
    if child:
        children.append(child)
    return child

os.fork = noted_fork

class Mute:
    def dumps(self, word, **_):
        if isinstance(word, str):
            raise MemoryError
        return json.dumps(word)

    loads = staticmethod(json.loads)

if trouble == "mute":
    download.json = Mute()

class Tally:
    bytes = files = 0
    lock = threading.Lock()  # without children there are threads

    def add(self, nbytes):
        with self.lock:
            if not self.bytes:
                print(json.dumps(children), flush=True)
                if on_first_word:
                    victim = os.getpid() if on_first_word == "parent" else children[0]
                    os.kill(victim, signal.SIGKILL)
            self.bytes += nbytes

    def file_done(self):
        with self.lock:
            self.files += 1

tally, error = Tally(), ""
pairs = [
    (
        RemoteFile(name, size, "v1", checksum, "s3://bucket/" + name,
                   functools.partial(Request, "GET", f"{url}/{name}")),
        f"{folder}/{name}",
    )
    for name, size, checksum in files
]
try:
    download.download_by_processes(pairs, tally, threads=threads)
except RunnerError as failure:
    error = str(failure)
print(json.dumps([tally.bytes, tally.files, children, error]), flush=True)
os._exit(0)
"""


@dataclass
class Store:
    """Files on a server, which may stop answering after some requests."""

    files: dict[str, bytes]
    answers: int = 1_000_000
    held: tuple[str, ...] = ("part-",)
    """What the names begin with of those of which no more than that are given."""
    missing: str = ""
    _released: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.server = WireServer(self._answer)

    def _answer(self, call: Call) -> Reply:
        name = call.path.lstrip("/")
        if name == self.missing:
            return Reply(404)
        with self._lock:
            self.answers -= name.startswith(self.held)
            is_held = self.answers < 0 and name.startswith(self.held)
        if is_held:
            self._released.wait(120)
        return Reply(200, self.files[name])

    def close(self) -> None:
        self._released.set()
        self.server.close()

    def download(
        self,
        folder: Path,
        *,
        processors: int = 3,
        threads: int = 12,
        on_first_word: str = "",
        trouble: str = "",
    ) -> list[Any]:
        """What the downloader printed, line by line."""
        files = [
            (name, len(data), f"md5:{hashlib.md5(data).hexdigest()}")  # noqa: S324 - as a store does
            for name, data in self.files.items()
        ]
        task = [files, str(folder), self.server.url, processors, threads, on_first_word, trouble]
        done = subprocess.run(
            [sys.executable, "-c", DOWNLOADER],
            input=json.dumps(task),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store({f"part-{number % 3}/{number:03}": noise(500, number) for number in range(320)})
    yield made
    made.close()


def wait_for_end(processes: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(map(is_alive, processes)):
        assert time.monotonic() < deadline, "a child is still there"
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    """Not gone, and not dead with nobody to notice it."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_every_file_arrives_and_is_counted(store: Store, tmp_path: Path) -> None:
    *_, (nbytes, files, children, error) = store.download(tmp_path)
    assert error == ""
    assert below(tmp_path) == store.files
    assert (nbytes, files) == (320 * 500, 320)
    assert len(children) == 3
    assert sorted(call.path for call in store.server.calls) == sorted(f"/{n}" for n in store.files)


@pytest.mark.parametrize(
    ("processors", "threads", "count"), [(8, 64, 3), (2, 64, 2), (1, 64, 0), (8, 1, 0)]
)
def test_as_many_processes_as_are_worth_while(
    store: Store, tmp_path: Path, processors: int, threads: int, count: int
) -> None:
    *_, (_, files, children, _) = store.download(tmp_path, processors=processors, threads=threads)
    assert (files, len(children)) == (320, count)


def test_few_files_are_not_worth_a_process(store: Store, tmp_path: Path) -> None:
    store.files = dict(list(store.files.items())[:150])
    *_, (_, files, children, _) = store.download(tmp_path)
    assert (files, len(children)) == (150, 0)


def test_a_failure_is_told_and_ends_the_others(store: Store, tmp_path: Path) -> None:
    store.missing, store.held, store.answers = "part-1/001", ("part-0", "part-2"), 60
    *_, (_, _, children, error) = store.download(tmp_path)
    assert "s3://bucket/part-1/001" in error
    assert "404" in error
    assert len(children) == 3
    wait_for_end(children)  # the store answers nobody any more: they wait in vain


def test_a_child_that_is_killed_is_missed(store: Store, tmp_path: Path) -> None:
    store.answers = 20
    *_, (_, _, children, error) = store.download(tmp_path, on_first_word="child")
    assert "killed" in error
    wait_for_end(children)  # the others wait in vain, and nobody waits for them


def test_a_child_that_cannot_tell_what_is_wrong_is_missed(store: Store, tmp_path: Path) -> None:
    store.missing = "part-1/001"
    *_, (_, _, _, error) = store.download(tmp_path, trouble="mute")
    assert "killed" in error


@pytest.mark.parametrize("trouble", ["no child", "one child"])
def test_where_there_may_be_no_more_processes(store: Store, tmp_path: Path, trouble: str) -> None:
    *_, (nbytes, files, children, error) = store.download(tmp_path, trouble=trouble)
    assert error == ""
    assert below(tmp_path) == store.files
    assert (nbytes, files) == (320 * 500, 320)
    assert len(children) == (trouble == "one child")


def test_children_end_with_their_parent(store: Store, tmp_path: Path) -> None:
    store.answers = 20
    (children,) = store.download(tmp_path, on_first_word="parent")
    assert len(children) == 3
    wait_for_end(children)
