"""Results that are in an object store: fetched by the same rules as those in a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tao_sdk
from lab.faults import Fault, FaultProxy, never
from lab.s3 import KINDS, Bucket, fresh_bucket
from tao_sdk.errors import CredentialError, StorageError, ValidationError
from tao_sdk.results import Selection, State, copy_results, open_results, plan_pull

MIB = 1024 * 1024
SOURCE_FOLDER = str(Path(tao_sdk.__file__).parent.parent)


@pytest.fixture(params=KINDS)
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with fresh_bucket(request.param) as made:
        settle_in(made, monkeypatch)
        yield made


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Takes any text for a key; rclone's server only what can be a file."""
    with fresh_bucket("moto") as made:
        settle_in(made, monkeypatch)
        yield made


def settle_in(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TAO_TRANSFER_ATTEMPTS", "2")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def pull(
    bucket: Bucket, destination: Path, selection: Selection | None = None, *, verify: bool = False
) -> dict[str, State]:
    source = open_results(f"{bucket.uri}/results/job", "")
    plan = plan_pull(source, destination, selection, verify=verify)
    return {outcome.path: outcome.state for outcome in copy_results(source, plan)}


def put(bucket: Bucket, **files: bytes) -> None:
    for name, data in files.items():
        bucket.put(f"results/job/{name}", data)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_everything_comes_and_once_only(bucket: Bucket, copy: Path) -> None:
    files = {"status.json": b"{}", "train/model.pth": os.urandom(300_000), "train/log.txt": b""}
    put(bucket, **files)
    bucket.put("results/job2/other", b"of another job")
    assert set(pull(bucket, copy).values()) == {State.COPIED}
    assert contents(copy) == files
    kept = (copy / "train" / "model.pth").stat().st_ino
    assert set(pull(bucket, copy).values()) == {State.PRESENT}
    assert set(pull(bucket, copy, verify=True).values()) == {State.PRESENT}
    assert (copy / "train" / "model.pth").stat().st_ino == kept
    assert not (copy / ".tao-pull").exists()


def test_what_changed_or_is_new_comes(bucket: Bucket, copy: Path) -> None:
    put(bucket, a=b"old", b=b"stays")
    pull(bucket, copy)
    put(bucket, a=b"newer", c=b"new")
    assert pull(bucket, copy) == {
        "a": State.COPIED,
        "b": State.PRESENT,
        "c": State.COPIED,
    }
    assert contents(copy) == {"a": b"newer", "b": b"stays", "c": b"new"}


def test_content_of_the_same_size_that_is_newer(bucket: Bucket, copy: Path) -> None:
    put(bucket, a=b"one")
    pull(bucket, copy)
    older = (copy / "a").stat().st_mtime - 10
    os.utime(copy / "a", (older, older))
    put(bucket, a=b"two")
    assert pull(bucket, copy) == {"a": State.COPIED}
    assert contents(copy) == {"a": b"two"}


def test_verify_finds_content_that_size_and_time_hide(bucket: Bucket, copy: Path) -> None:
    put(bucket, model=b"weights")
    pull(bucket, copy)
    times = (copy / "model").stat()
    (copy / "model").write_bytes(b"WEIGHTS")
    os.utime(copy / "model", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert pull(bucket, copy) == {"model": State.PRESENT}
    assert pull(bucket, copy, verify=True) == {"model": State.COPIED}
    assert contents(copy) == {"model": b"weights"}


def test_a_choice_of_files(bucket: Bucket, copy: Path) -> None:
    put(bucket, **{"train/a.pth": b"a", "train/b.txt": b"b", "c.pth": b"c"})
    assert set(pull(bucket, copy, Selection(("*.pth",), ("train",)))) == {"c.pth"}
    assert contents(copy) == {"c.pth": b"c"}


def test_more_files_than_are_fetched_at_once(bucket: Bucket, copy: Path) -> None:
    files = {f"{number // 50}/{number}": str(number).encode() for number in range(300)}
    put(bucket, **files)
    counted: list[int] = []
    source = open_results(f"{bucket.uri}/results/job", "")
    plan = plan_pull(source, copy)
    outcomes = list(copy_results(source, plan, counted.append))
    assert len(outcomes) == 300
    assert sum(counted) == plan.bytes_to_copy == sum(map(len, files.values()))
    assert contents(copy) == files


# ---------------------------------------------------------------- hostile names


def test_names_cannot_lead_out_of_the_destination(moto: Bucket, copy: Path) -> None:
    hostile = ["../../out", "a/../../../out", "..", "folder/..", "../job/in"]
    put(moto, **dict.fromkeys(hostile, b"evil"))
    put(moto, **{"/etc/passwd": b"confined", "./here": b"confined", "fine": b"fine"})
    outcome = pull(moto, copy)
    assert {path for path, state in outcome.items() if state is State.SKIPPED} == set(hostile)
    assert contents(copy.parent) == {
        "copy/etc/passwd": b"confined",
        "copy/here": b"confined",
        "copy/fine": b"fine",
    }


def test_what_no_disk_can_hold_is_told_and_the_rest_comes(moto: Bucket, copy: Path) -> None:
    put(moto, **{"a": b"object", "a/b": b"below", "c": b"single", "c/": b"", "mark": b""})
    put(moto, **{"mark/file": b"x", "d/e": b"one", "d//e": b"two", "full/": b"content"})
    put(moto, **{"empty/": b""})
    outcome = pull(moto, copy)
    skipped = {path for path, state in outcome.items() if state is State.SKIPPED}
    assert skipped == {"a", "c/", "d//e", "full/"}
    assert contents(copy) == {
        "a/b": b"below",
        "c": b"single",
        "d/e": b"one",
        "mark/file": b"x",
    }
    assert (copy / "empty").is_dir()


def test_nothing_is_written_through_links_at_the_destination(bucket: Bucket, copy: Path) -> None:
    put(bucket, **{"train/model": b"x", "status": b"y"})
    elsewhere = copy.parent / "elsewhere"
    elsewhere.mkdir()
    copy.mkdir()
    (copy / "train").symlink_to(elsewhere)
    (copy / "status").symlink_to(elsewhere / "victim")
    outcome = pull(bucket, copy)
    assert (outcome["train/model"], outcome["status"]) == (State.FAILED, State.COPIED)
    assert list(elsewhere.iterdir()) == []


# ---------------------------------------------------------------- a job that goes on meanwhile


def test_what_changes_or_goes_away_meanwhile(bucket: Bucket, copy: Path) -> None:
    put(bucket, gone=b"gone", changed=b"first", rests=b"rests")
    source = open_results(f"{bucket.uri}/results/job", "")
    plan = plan_pull(source, copy)
    bucket.client.delete_object(Bucket=bucket.name, Key="results/job/gone")
    put(bucket, changed=b"second version")
    outcome = {each.path: each.state for each in copy_results(source, plan)}
    assert outcome == {"gone": State.GONE, "changed": State.COPIED, "rests": State.COPIED}
    assert contents(copy) == {"changed": b"second version", "rests": b"rests"}


# ---------------------------------------------------------------- killed


_PULL = """
import sys
from pathlib import Path
from tao_sdk.results import copy_results, open_results, plan_pull

source = open_results(sys.argv[1], "")
plan = plan_pull(source, Path(sys.argv[2]))
done = 0

def advance(count):
    global done
    done += count
    print(done, flush=True)

for outcome in copy_results(source, plan, advance):
    print(outcome.state, flush=True)
"""


def test_a_killed_pull_is_finished_by_the_next(
    moto: Bucket, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first one fetched of a large file is not fetched again."""
    size = 96 * MIB
    model = os.urandom(MIB) * (size // MIB)
    put(moto, **{"a.json": b"{}", "model.pth": model})
    env = {**os.environ, "PYTHONPATH": SOURCE_FOLDER, "TAO_TRANSFER_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", _PULL, f"{moto.uri}/results/job", str(copy)],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    deadline = time.monotonic() + 60
    for line in process.stdout:
        assert time.monotonic() < deadline
        if line.strip().isdigit() and int(line) > 40 * MIB:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (copy / "model.pth").exists()
    assert any((copy / ".tao-pull" / "parts").iterdir())
    pieces: list[str] = []

    def script(number: int, method: str, target: str) -> Fault | None:
        pieces.extend([target] if target.endswith("/model.pth") else [])
        return None

    with FaultProxy(moto.url, script) as proxy:
        monkeypatch.setenv("S3_ENDPOINT_URL", proxy.url)
        assert set(pull(moto, copy).values()) <= {State.COPIED, State.PRESENT}
    assert contents(copy) == {"a.json": b"{}", "model.pth": model}
    assert not (copy / ".tao-pull").exists()
    assert 0 < len(pieces) < size // (16 * MIB), "two pieces at least were there"


# ---------------------------------------------------------------- what cannot be reached


def test_nothing_there(bucket: Bucket, copy: Path) -> None:
    bucket.put("results/job2/x", b"")
    with pytest.raises(ValidationError, match=f"there is nothing at {bucket.uri}/results/job "):
        pull(bucket, copy)
    assert not copy.exists()


def test_a_store_that_cannot_be_reached(
    bucket: Bucket, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S3_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=f"{bucket.uri}/results/job"):
        pull(bucket, copy)


def test_credentials_that_are_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_bucket("rclone") as bucket:
        settle_in(bucket, monkeypatch)
        put(bucket, a=b"x")
        monkeypatch.setenv("SECRET_KEY", "not-the-one")
        with pytest.raises(CredentialError, match="SECRET_KEY"):
            pull(bucket, copy)


def test_a_store_that_fails_in_the_middle(
    moto: Bucket, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is named, what came before stays, and the next pull goes on."""
    put(moto, a=b"x", z=b"y")

    def script(number: int, method: str, target: str) -> Fault | None:
        return Fault(status=500) if target.endswith("/results/job/z") else None

    with FaultProxy(moto.url, script) as proxy:
        monkeypatch.setenv("S3_ENDPOINT_URL", proxy.url)
        with pytest.raises(StorageError, match=f"{moto.uri}/results/job/z.*500"):
            pull(moto, copy)
        proxy.script = never
        assert set(pull(moto, copy).values()) == {State.COPIED}
    assert contents(copy) == {"a": b"x", "z": b"y"}
