"""How data moves, as a whole: at once, in pieces, once, and whole or not at all.

Parallelism is counted by the proxy, never timed.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from entrypoints import JOB, Container, container, entrypoint, files_below, names_in, until
from stores import Bucket

from lab.faults import SLOW_DOWN, Fault, FaultProxy
from lab.transfers import noise
from tao_sdk.runner import download, incoming

LARGE = download.LARGE + incoming.PIECE // 2
"""Bytes of a file that comes in three pieces."""
QUICK = {"TAO_TRANSFER_ATTEMPTS": "3", "TAO_STALL_SECONDS": "1"}


class Crowd:
    """A script for the proxy that holds requests back until so many are there at once."""

    def __init__(self, wanted: int, method: str, *parts: str) -> None:
        self.wanted, self.method, self.parts = wanted, method, parts
        self.present: list[str] = []
        self.most = 0
        self._changed = threading.Condition()

    def __call__(self, number: int, method: str, target: str) -> None:
        part = next((part for part in self.parts if part in target), "")
        if method != self.method or not part:
            return
        with self._changed:
            self.present.append(part)
            self.most = max(self.most, len(self.present))
            self._changed.notify_all()
            self._changed.wait_for(self._is_complete, timeout=10)
            self.present.remove(part)

    def _is_complete(self) -> bool:
        return self.most >= self.wanted


def test_small_files_come_at_once_with_one_request_each(box: Container, bucket: Bucket) -> None:
    """Lesson C1: more than one in flight, and no request but the listing beside."""
    files = {f"in/{number:03d}": noise(1000, number) for number in range(40)}
    bucket.put(files)
    crowd = Crowd(8, "GET", "/in/")
    data = box.folder / "data"
    with FaultProxy(bucket.url, crowd) as proxy:
        bucket.url = proxy.url
        ended = box.run("true", env=bucket.env, inputs={str(data): "s3://bucket/in/"})
        assert ended.code == 0, ended.err
        assert crowd.most >= 8
        assert [proxy.count("GET", f"/{key}") for key in files] == [1] * 40
        assert len(proxy.requests) == 41
    assert files_below(data) == {key[3:]: data for key, data in files.items()}


def test_small_files_go_at_once_with_one_request_each(box: Container, bucket: Bucket) -> None:
    """Lesson C2: 40 files are 40 requests, not 80; the record of the job is the 41st."""
    out = box.folder / "out"
    out.mkdir()
    for number in range(40):
        (out / f"{number:03d}").write_bytes(noise(1000, number))
    crowd = Crowd(8, "PUT", "/out/")
    with FaultProxy(bucket.url, crowd) as proxy:
        bucket.url = proxy.url
        ended = box.run("true", env=bucket.results, outputs=[str(out)])
        assert ended.code == 0, ended.err
        assert crowd.most >= 8
        # On a busy machine a connection may break, and its request come again.
        assert 40 <= proxy.count("PUT", "/out/") <= 45
        assert len(proxy.requests) <= 46
    assert bucket.below(f"results/{JOB}/out") == files_below(out)


def test_a_large_file_comes_and_goes_in_pieces(box: Container, bucket: Bucket) -> None:
    """Lesson C3: several ranges at once, each once; several parts at once, each once."""
    content = noise(LARGE)
    bucket.put({"large": content})
    crowd = Crowd(2, "GET", "/large")
    path, out = box.folder / "large", box.folder / "out"
    with FaultProxy(bucket.url, crowd) as proxy:
        bucket.url = proxy.url
        ended = box.run(
            f"cp {path} {out}",
            env=bucket.results,
            inputs={str(path): "s3://bucket/large"},
            outputs=[str(out)],
        )
        assert ended.code == 0, ended.err
        assert crowd.most >= 2
        assert proxy.count("GET", "/large") == 3
        parts = [target for method, target in proxy.requests if "partNumber=" in target]
        assert len(parts) == len(set(parts)) > 1
    assert path.read_bytes() == content
    assert bucket.read(f"results/{JOB}/out") == content


def test_inputs_do_not_wait_for_each_other(box: Container, bucket: Bucket) -> None:
    """Lesson C4: the file of one and the file of the other are on their way at once."""
    bucket.put({"one/a": b"1", "two/b": b"2", "three/c": b"3"})
    crowd = Crowd(3, "GET", "/one/a", "/two/b", "/three/c")
    with FaultProxy(bucket.url, crowd) as proxy:
        bucket.url = proxy.url
        specs = {name: f"s3://bucket/{name}" for name in ("one", "two", "three")}
        ended = box.run("true {config_path}", env=bucket.env, specs=specs, inputs=[*specs])
    assert ended.code == 0, ended.err
    assert crowd.most == 3


def test_one_uri_that_is_wanted_twice_comes_once(box: Container, bucket: Bucket) -> None:
    """Lesson C4."""
    bucket.put({"in/a": b"1"})
    with FaultProxy(bucket.url) as proxy:
        bucket.url = proxy.url
        specs = {"x": "s3://bucket/in", "y": "s3://bucket/in/"}
        ended = box.run("true {config_path}", env=bucket.env, specs=specs, inputs=[*specs])
        assert ended.code == 0, ended.err
        assert proxy.count("GET", "/in/a") == 1


# -- interrupted


@pytest.mark.parametrize("size", [3000, LARGE])
def test_half_a_file_is_never_taken_for_a_whole_one(
    box: Container, bucket: Bucket, size: int
) -> None:
    """Lesson A2: killed in the middle; the next attempt ends with the right bytes, and of a
    large file fetches only what was missing."""
    content = noise(size)
    bucket.put({"in/data.bin": content})
    target = box.folder / "data" / "data.bin"
    command = entrypoint(command="true", inputs={str(target.parent): "s3://bucket/in"})
    is_large = size == LARGE

    def stuck(number: int, method: str, target: str) -> Fault | None:
        """Of a large file the first two pieces arrive."""
        is_last = proxy.count("GET", "data.bin") > (2 if is_large else 0)
        return Fault(stall_after=2000) if "data.bin" in target and is_last else None

    with FaultProxy(bucket.url, stuck) as proxy:
        env = {**bucket.env, "S3_ENDPOINT_URL": proxy.url, "TAO_RESULTS_ROOT": str(box.root)}
        env["TAO_TRANSFER_THREADS"] = "1"
        process = box.start(command, env)
        asked = 3 if is_large else 1
        until(lambda: proxy.count("GET", "data.bin") == asked, "in the middle")
        process.kill()
        box.end(process)
        assert not target.exists()
        proxy.script = lambda *_: None
        ended = box.run(command, env={**env, "TAO_ATTEMPT": "2"})
        assert ended.code == 0, ended.err
        assert target.read_bytes() == content
        assert proxy.count("GET", "data.bin") == asked + 1, "nothing that was here came again"
    assert names_in(target.parent) == ["data.bin"], "no rest is left"


def test_a_failed_attempt_leaves_nothing_that_looks_whole(box: Container, bucket: Bucket) -> None:
    """Lesson A2: the store breaks every answer; the error names the object."""
    bucket.put({"in/data.bin": noise(3000)})
    target = box.folder / "data"
    command = entrypoint(command="echo ran", inputs={str(target): "s3://bucket/in"})

    def breaks(number: int, method: str, target: str) -> Fault | None:
        return Fault(cut_after=1500) if "data.bin" in target else None

    with FaultProxy(bucket.url, breaks) as proxy:
        broken = box.run(command, env={**bucket.env, **QUICK, "S3_ENDPOINT_URL": proxy.url})
    assert (broken.code, broken.out) == (1, "")
    assert "s3://bucket/in/data.bin" in broken.error
    assert "tried 3 times" in broken.error
    assert not list(target.rglob("data.bin"))
    ended = box.run(command, env={**bucket.env, "TAO_ATTEMPT": "2"})
    assert (ended.code, ended.out) == (0, "ran\n"), ended.err
    assert files_below(target) == {"data.bin": noise(3000)}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_after=1500),
        Fault(reset_after=1500),
        Fault(stall_after=1500),
        Fault(flip_after=1500),
        Fault(status=503, body=SLOW_DOWN),
        Fault(status=500),
        Fault(delay=0.2),
    ],
    ids=["cut", "reset", "stall", "flipped bit", "slow down", "error 500", "delay"],
)
def test_passing_troubles_pass(box: Container, bucket: Bucket, fault: Fault) -> None:
    """Lesson A2: each on the way in and on the way out, once; then right bytes at both ends."""
    content = noise(5000)
    bucket.put({"in/data.bin": content})
    target, out = box.folder / "data", box.folder / "out.bin"
    done: set[str] = set()

    def once(number: int, method: str, target: str) -> Fault | None:
        end = next((word for word in ("/in/data.bin", "/out.bin") if word in target), "")
        if not end or end in done:
            return None
        done.add(end)
        return fault if end == "/in/data.bin" or fault.flip_after < 0 else None

    with FaultProxy(bucket.url, once) as proxy:
        ended = box.run(
            f"cp {target}/data.bin {out}",
            env={**bucket.results, **QUICK, "S3_ENDPOINT_URL": proxy.url},
            inputs={str(target): "s3://bucket/in"},
            outputs=[str(out)],
        )
    assert ended.code == 0, ended.err
    assert len(done) == 2
    assert (target / "data.bin").read_bytes() == content
    assert bucket.read(f"results/{JOB}/out.bin") == content


def test_a_flipped_bit_in_a_large_file_is_noticed_when_asked_for(
    box: Container, bucket: Bucket
) -> None:
    """TAO_VERIFY=full: its length is right, its MD5 is not; then right bytes."""
    content = noise(LARGE)
    bucket.put({"large": content})
    path = box.folder / "large"
    flips = [Fault(flip_after=1_000_000)]

    def once(number: int, method: str, target: str) -> Fault | None:
        return flips.pop() if method == "GET" and "/large" in target and flips else None

    with FaultProxy(bucket.url, once) as proxy:
        bucket.url = proxy.url
        env = {**bucket.env, "TAO_VERIFY": "full"}
        ended = box.run("true", env=env, inputs={str(path): "s3://bucket/large"})
    assert ended.code == 0, ended.err
    assert not flips
    assert path.read_bytes() == content


# -- what cannot be delivered


def test_a_delivery_that_fails_is_told_by_the_exit_code(box: Container, bucket: Bucket) -> None:
    """74 where the command succeeded, its own code where it did not; with the file's name."""
    out = box.folder / "out"

    def refuses(number: int, method: str, target: str) -> Fault | None:
        return Fault(status=500) if "/bad" in target else None

    with FaultProxy(bucket.url, refuses) as proxy:
        env = {**bucket.results, **QUICK, "S3_ENDPOINT_URL": proxy.url}
        for code, seen in ((0, 74), (3, 3)):
            ended = box.run(
                f"mkdir -p {out}; echo 1 > {out}/good; echo 2 > {out}/bad; exit {code}",
                env=env,
                outputs=[str(out)],
            )
            assert ended.code == seen, ended.err
            assert f"1 of the results were not delivered: {out}/bad" in ended.error
    assert bucket.below(f"results/{JOB}") == {"out/good": b"1\n"}


def test_a_stopped_job_does_not_wait_for_ever(box: Container, bucket: Bucket) -> None:
    """Lesson A6: TAO_DELIVERY_SECONDS after SIGTERM it ends, and says what is missing."""
    out = box.folder / "out"
    with FaultProxy(bucket.url, lambda n, method, t: Fault(delay=60)) as proxy:
        process = box.start(
            entrypoint(command=f"echo 1 > {out}; touch r; sleep 600", outputs=[str(out)]),
            {
                **bucket.results,
                "S3_ENDPOINT_URL": proxy.url,
                "TAO_DELIVERY_SECONDS": "0.5",
            },
        )
        until(lambda: (box.cwd / "r").exists(), "running")
        process.terminate()
        ended = box.end(process)
    assert ended.code == 143
    assert f"{out} (the time for delivery was up)" in ended.error
    assert "the result record could not be written" in ended.err, "nor does the record wait"


def test_a_stopped_job_leaves_no_unfinished_upload(box: Container, bucket: Bucket) -> None:
    """Parts of an object that never becomes one would be stored, and paid for, for ever."""
    out = box.folder / "out"

    def one_part_hangs(number: int, method: str, target: str) -> Fault | None:
        return Fault(delay=60) if "partNumber=2" in target else None

    with FaultProxy(bucket.url, one_part_hangs) as proxy:
        process = box.start(
            entrypoint(
                command=f"head -c 20000000 /dev/zero > {out}",
                outputs=[str(out)],
            ),
            {
                **bucket.results,
                "S3_ENDPOINT_URL": proxy.url,
                "TAO_DELIVERY_SECONDS": "8",  # a quarter of it is for tidying up
            },
        )
        until(lambda: proxy.count("PUT", "partNumber=2"), "an unfinished upload")
        assert bucket.unfinished_uploads() != []
        process.terminate()
        ended = box.end(process)
    assert f"{out} (the time for delivery was up)" in ended.error
    assert bucket.unfinished_uploads() == []
    assert bucket.below(f"results/{JOB}") == {}


def test_stopped_while_staging(box: Container, bucket: Bucket) -> None:
    """Lesson B6: at once, with the signal's code; the command never runs; the next one does."""
    bucket.put({"in/a": b"1"})
    command = entrypoint(command="echo ran", inputs={str(box.folder / "data"): "s3://bucket/in"})
    with FaultProxy(bucket.url, lambda n, m, target: Fault(stall_after=0)) as proxy:
        env = {**bucket.env, "S3_ENDPOINT_URL": proxy.url}
        process = box.start(command, env)
        until(lambda: proxy.requests, "staging")
        process.terminate()
        ended = box.end(process)
    assert (ended.code, ended.out) == (143, "")
    assert "stopped by SIGTERM" in ended.error
    again = box.run(command, env={**bucket.env, "TAO_ATTEMPT": "2"})
    assert (again.code, again.out) == (0, "ran\n"), again.err


def test_a_disk_that_is_full(tmp_path: Path, bucket: Bucket) -> None:
    """Said with the URI and what to do; nothing half is left under its name."""
    bucket.put({"in/a": b"1"})
    with container(tmp_path / "box") as box:
        limit = "ulimit -f 1; "
        bucket.put({"big": noise(300_000)})
        ended = box.run(
            limit + entrypoint(command="echo ran", inputs={f"{box.folder}/d": "s3://bucket/big"}),
            env=bucket.env,
        )
        assert (ended.code, ended.out) == (1, "")
        assert "File too large" in ended.error
        assert not (box.folder / "d").exists()
