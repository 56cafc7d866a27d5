"""Storage that mirrors the store and is used by several jobs, as a whole."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from entrypoints import Container, container, entrypoint, names_in, until
from stores import Bucket

from lab.faults import Fault, FaultProxy
from tao_sdk.runner import stage
from tao_sdk.runner.context import read_context
from tao_sdk.runner.notes import read_note
from tao_sdk.runner.remote import Listing, RemoteFile, Request
from tao_sdk.runner.report import Reporter
from tao_sdk.runner.staging_lock import _Turns
from tao_sdk.runner.tasks import StagingTask


def archive(count: int = 3) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as packed:
        for number in range(count):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = 3
            packed.addfile(member, io.BytesIO(b"abc"))
    return stream.getvalue()


def asked(mirror: Path) -> dict[str, Any]:
    return {
        "command": f"ls {mirror}/bucket/x; cat {{config_path}}",
        "specs": {"d": "s3://bucket/x.tar"},
        "inputs": ["d"],
        "mount_path": str(mirror),
    }


def test_two_jobs_that_want_the_same_archive(tmp_path: Path, bucket: Bucket) -> None:
    """One fetches and unpacks, the other waits for it, looks again, and finds all of it."""
    bucket.put({"x.tar": archive(300)})
    other_has_listed = threading.Event()
    asks = {"HEAD": 0}

    def hold(number: int, method: str, target: str) -> Fault | None:
        if "x.tar" in target and method == "HEAD":
            asks["HEAD"] += 1
        if asks["HEAD"] > 1:
            other_has_listed.set()
        if method == "GET" and target.partition("?")[0].endswith("x.tar"):
            other_has_listed.wait(30)
        return None

    mirror = tmp_path / "mirror"
    command = entrypoint(**asked(mirror))
    with (
        FaultProxy(bucket.url, hold) as proxy,
        container(tmp_path / "a", {"TAO_JOB_ID": "job-a"}) as first,
        container(tmp_path / "z", {"TAO_JOB_ID": "job-z"}) as second,
    ):
        env = {**bucket.env, "S3_ENDPOINT_URL": proxy.url}
        one = first.start(command, env)
        until(lambda: proxy.count("GET", "x.tar"), "fetching")
        two = second.start(command, env)
        for box, process in ((first, one), (second, two)):
            ended = box.end(process)
            assert ended.code == 0, ended.err
            assert ended.out.count(".txt\n") == 300
        assert proxy.count("GET", "x.tar") == 1
    assert names_in(mirror / "bucket") == [".x.tar.tao-extracted", "x", "x.tar"]


def test_what_another_job_brought_is_compared_not_believed(box: Container, bucket: Bucket) -> None:
    """The waiting one lists again, as the store may have changed meanwhile."""
    mirror = box.folder / "mirror"
    bucket.put({"in/a": b"old"})
    turns = mirror / ".tao" / "turns" / stage._digest(f"{mirror}/bucket/in")
    turns.mkdir(parents=True)
    (turns / "turn-1").write_text('{"holder": "rank 0 of another job", "attempt": 1}')
    process = box.start(
        entrypoint(
            command=f"cat {mirror}/bucket/in/* {{config_path}}",
            specs={"d": "s3://bucket/in"},
            inputs=["d"],
            mount_path=str(mirror),
        ),
        bucket.env,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "waiting for rank 0 of another job" in line:
            break
    bucket.put({"in/a": b"new", "in/b": b"more"})
    (turns / "turn-1.outcome").write_text('{"digest": "other", "info": {}}')
    ended = box.end(process)
    assert ended.out.startswith("newmore"), ended.err


def test_archives_on_a_mirror_stay(box: Container, bucket: Bucket) -> None:
    """They belong to whoever put them there."""
    bucket.put({"x.tar": archive()})
    mirror = box.folder / "mirror"
    (mirror / "bucket").mkdir(parents=True)
    (mirror / "bucket" / "x.tar").write_bytes(archive())
    box.env = bucket.env
    assert "0.txt" in box.successful(**asked(mirror)).out
    assert (mirror / "bucket" / "x.tar").read_bytes() == archive()


def test_an_archive_that_was_here_before_the_job_stays(box: Container, bucket: Bucket) -> None:
    bucket.put({"x.tar": archive()})
    own = box.folder / "own"
    own.mkdir()
    (own / "x.tar").write_bytes(archive())
    box.env = bucket.env
    box.successful(
        "true {config_path}",
        specs={"d": "s3://bucket/x.tar"},
        inputs={"d": {"container_path": str(own)}},
    )
    assert names_in(own) == [".x.tar.tao-extracted", "x", "x.tar"]


@pytest.mark.parametrize("mirrored", [True, False])
def test_an_unpacked_folder_that_somebody_removed_comes_back(
    box: Container, bucket: Bucket, mirrored: bool
) -> None:
    bucket.put({"x.tar": archive()})
    mirror = box.folder / "mirror"
    wanted = {**asked(mirror), "command": "true {config_path}"}
    unpacked = mirror / "bucket" / "x" if mirrored else box.work / "inputs" / "d" / "x"
    if not mirrored:
        del wanted["mount_path"]
    for attempt in ("1", "2"):
        box.env = {**bucket.env, "TAO_ATTEMPT": attempt}
        box.successful(**wanted)
        assert names_in(unpacked) == ["0.txt", "1.txt", "2.txt"]
        shutil.rmtree(unpacked)


def test_a_named_archive_is_there_and_unpacked_beside_itself(
    box: Container, bucket: Bucket
) -> None:
    """Passthrough: the path that was named exists, with a mirror and without one."""
    bucket.put({"x.tar": archive()})
    box.env = bucket.env
    for mount, folder in (("", "a"), (str(box.folder / "mirror"), "b")):
        path = box.folder / folder / "data.tar"
        ended = box.successful(
            f"tar tf {path}; ls {path.parent / 'data'}",
            inputs={str(path): "s3://bucket/x.tar"},
            mount_path=mount,
        )
        assert ended.out == "0.txt\n1.txt\n2.txt\n" * 2
    assert path.readlink() == box.folder / "mirror" / "bucket" / "x.tar"


# Its owner may write nowhere below; as root, only a mount can say no.
READ_ONLY = 'mount --bind "$M" "$M" && mount -o remount,ro,bind "$M" && exec bash -c "$C"'


def can_mount() -> bool:
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(probe, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs user namespaces (unshare -rm)")
@pytest.mark.parametrize("has_markers", [True, False])
def test_a_complete_mirror_that_is_read_only(
    box: Container, bucket: Bucket, has_markers: bool
) -> None:
    """Nothing has to be written there, so nothing fails; and the next attempt remembers."""
    bucket.put({"in/a": b"A"})
    mirror = box.folder / "mirror"
    wanted: dict[str, Any] = {
        "command": f"cat {mirror}/bucket/in/a {{config_path}}",
        "specs": {"d": "s3://bucket/in"},
        "inputs": ["d"],
        "mount_path": str(mirror),
    }
    box.env = bucket.env
    if has_markers:
        box.successful(**wanted)
    else:
        (mirror / "bucket" / "in").mkdir(parents=True)
        (mirror / "bucket" / "in" / "a").write_bytes(b"A")
    for attempt, remembered in (("2", has_markers), ("3", True)):
        ended = box.run(
            f"unshare -rm bash -c '{READ_ONLY}'",
            env={"M": str(mirror), "C": entrypoint(**wanted), "TAO_ATTEMPT": attempt},
        )
        assert ended.code == 0, ended.err
        assert ended.out.startswith("A")
        assert ("is here already" in ended.err) is remembered
    assert (mirror / ".tao").exists() is has_markers


def test_two_writers_of_one_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers of their own both may have the same process id."""
    (tmp_path / "k").write_bytes(b"x")
    task = StagingTask("s3://b/k", str(tmp_path / "k"), exact=True)
    file = RemoteFile("k", 1, "tag", "", "s3://b/k", lambda: Request("GET", ""))
    wanted = stage._wanted(task, Listing(task.uri, False, (file,)))
    context = read_context({"TAO_WORK_ROOT": str(tmp_path / "work")})

    def conclude() -> None:
        stage._Staging([task], {}, context, Reporter(), str(tmp_path))._conclude(wanted, ())

    replace = os.replace

    def interrupted(draft: str, path: str) -> None:
        monkeypatch.setattr(os, "replace", replace)
        conclude()  # the other one, in between
        replace(draft, path)

    monkeypatch.setattr(os, "replace", interrupted)
    conclude()
    assert len(names_in(tmp_path / ".tao" / "staged")) == 1


def test_two_files_for_one_place(box: Container, bucket: Bucket) -> None:
    """Neither wins silently: both are named."""
    bucket.put({"in/a": b"1", "other": b"2"})
    data = box.folder / "data"
    ended = box.run(
        "echo ran",
        env=bucket.env,
        inputs={str(data): "s3://bucket/in", str(data / "a"): "s3://bucket/other"},
    )
    assert (ended.code, ended.out) == (1, "")
    assert "s3://bucket/in/a and s3://bucket/other would both be put at" in ended.error


def test_a_container_that_was_started_again_looks_again(box: Container, bucket: Bucket) -> None:
    """The same attempt, but what the store has may have changed since."""
    command = entrypoint(
        command=f"cat {box.folder}/in/f", inputs={f"{box.folder}/in": "s3://bucket/in"}
    )
    for content in (b"old", b"new"):
        bucket.put({"in/f": content})
        assert box.run(command, env=bucket.env).out == content.decode()


def marker_of(mirror: Path) -> Path:
    [marker] = (mirror / ".tao" / "staged").iterdir()
    return marker


@pytest.mark.parametrize("how", ["beside", "through ..", "through a link", "below"])
def test_a_marker_leads_to_no_file_outside_its_target(
    box: Container, bucket: Bucket, how: str
) -> None:
    """Anybody who may write on a shared mirror can leave a marker there."""
    bucket.put({"in/a": b"A"})
    mirror, victim = box.folder / "mirror", box.folder / "victim"
    wanted = {"specs": {"d": "s3://bucket/in"}, "inputs": ["d"], "mount_path": str(mirror)}
    box.env = bucket.env
    box.successful("cat {config_path}", **wanted)
    victim.mkdir()
    (victim / "precious").write_text("12345")
    target = mirror / "bucket" / "in"
    (target / "link").symlink_to(victim)
    (target / "old").write_text("12345")
    planted = {
        "beside": f"{victim}/precious",
        "through ..": f"{target}/../../../victim/precious",
        "through a link": f"{target}/link/precious",
        "below": f"{target}/old",
    }[how]
    marker = marker_of(mirror)
    note = json.loads(marker.read_text())
    note.update(digest="0", result=str(victim), files={**note["files"], planted: 5})
    marker.write_text(json.dumps(note))
    bucket.put({"in/a": b"newer"})
    box.env = {**bucket.env, "TAO_ATTEMPT": "2"}
    ended = box.successful("cat {config_path}", **wanted)
    assert str(victim) not in ended.out, "the dataset is where it belongs"
    assert (victim / "precious").exists()
    assert (target / "old").exists() is (how != "below")


MALFORMED: dict[str, Any] = {
    "no types": {"digest": 5, "files": [1], "archives": "x"},
    "sizes of no type": {"digest": "0", "files": {"a": "5"}, "archives": {}},
    "paths of no type": {"digest": "0", "files": {}, "archives": {"a": 5}},
    "a list": [1],
}


@pytest.mark.parametrize("note", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_marker_is_none(box: Container, bucket: Bucket, note: object) -> None:
    bucket.put({"in/a": b"A"})
    mirror = box.folder / "mirror"
    wanted = {"specs": {"d": "s3://bucket/in"}, "inputs": ["d"], "mount_path": str(mirror)}
    box.env = bucket.env
    box.successful("cat {config_path}", **wanted)
    marker_of(mirror).write_text(json.dumps(note))
    box.env = {**bucket.env, "TAO_ATTEMPT": "2"}
    assert "is here already" not in box.successful("cat {config_path}", **wanted).err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_marker_of_another_user_proves_nothing(box: Container, bucket: Bucket) -> None:
    bucket.put({"in/a": b"A"})
    mirror = box.folder / "mirror"
    wanted = {"specs": {"d": "s3://bucket/in"}, "inputs": ["d"], "mount_path": str(mirror)}
    box.env = bucket.env
    box.successful("cat {config_path}", **wanted)
    (mirror / "bucket" / "in" / "a").write_bytes(b"B")
    for owner, is_believed in ((12345, False), (0, True)):
        os.chown(marker_of(mirror), owner, -1)
        box.env = {**bucket.env, "TAO_ATTEMPT": str(2 + owner)}
        ended = box.successful("cat {config_path}", **wanted)
        assert ("is here already" in ended.err) is is_believed
    assert (mirror / "bucket" / "in" / "a").read_bytes() == b"A"


def test_what_others_leave_in_place_of_a_note_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert read_note(str(tmp_path / "folder")) == {}
    turns = _Turns(str(tmp_path / "turns"), "digest", "rank 0", attempt=2, rank=0)
    Path(turns.path(1)).write_text('{"attempt": "first"}')
    assert not turns.is_left_over(1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_of_a_note_of_another_user_little_is_read(tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text(json.dumps({"holder": "x" * 2_000_000}))
    assert read_note(str(note)) != {}
    os.chown(note, 12345, -1)
    assert read_note(str(note)) == {}
