"""Passthrough mode, as a whole: data brought to paths, archives opened, results taken away."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from entrypoints import Container, entrypoint, files_below, names_in
from stores import Bucket

from lab.hub import Hub
from lab.s3 import KINDS
from tao_sdk.errors import ValidationError
from tao_sdk.spec_serialization import SpecTypeError


@pytest.mark.seed("000.10", "000.16")
@pytest.mark.parametrize("bucket", KINDS, indirect=True)
@pytest.mark.parametrize("slash", ["", "/", "//"])
def test_a_folder_of_a_store(box: Container, bucket: Bucket, slash: str) -> None:
    """Lesson A1: a prefix becomes a folder with everything below it, not an empty file."""
    bucket.put({"in/a.txt": b"A", "in/deep/b c.txt": b"B", "input/other": b"no"})
    data = box.folder / "data" / "in"
    ended = box.run(
        f"cat {data}/a.txt '{data}/deep/b c.txt'",
        env=bucket.env,
        inputs={str(data): f"s3://bucket/in{slash}"},
    )
    assert (ended.code, ended.out) == (0, "AB"), ended.err
    assert files_below(data) == {"a.txt": b"A", "deep/b c.txt": b"B"}
    assert ended.progress("staging")["files_done"] == 2


def test_a_file_of_a_store_gets_exactly_the_path(box: Container, bucket: Bucket) -> None:
    bucket.put({"models/weights.pth": b"W", "empty": b""})
    path, empty = box.folder / "m" / "start.pth", box.folder / "m" / "nothing"
    ended = box.run(
        f"cat {path}; test -f {empty}",
        env=bucket.env,
        inputs={str(path): "s3://bucket/models/weights.pth", str(empty): "s3://bucket/empty"},
    )
    assert (ended.code, ended.out) == (0, "W"), ended.err


@pytest.mark.parametrize("uri", ["s3://bucket/missing", "s3://bucket/missing/"])
def test_a_missing_prefix_is_an_error(box: Container, bucket: Bucket, uri: str) -> None:
    """Lesson A4: the command does not run on an empty folder."""
    target = box.folder / "data"
    ended = box.run("echo ran", env=bucket.env, inputs={str(target): uri})
    assert (ended.code, ended.out) == (1, "")
    assert f"{uri}: there is no such" in ended.error
    assert not target.exists()


@pytest.mark.parametrize("form", ["lustre://{}", "slurm://{}", "file://{}", "{}"])
def test_data_on_a_mount_is_linked_not_copied(box: Container, form: str) -> None:
    """Lesson A9: and a second attempt finds its own link."""
    data = box.folder / "fs" / "set"
    data.mkdir(parents=True)
    (data / "a").write_bytes(b"A")
    wanted = box.folder / "data" / "in"
    command = entrypoint(command=f"cat {wanted}/a", inputs={str(wanted): form.format(data)})
    assert [box.run(command, {"TAO_ATTEMPT": n}).out for n in ("1", "2")] == ["A", "A"]
    assert wanted.is_symlink()


@pytest.mark.parametrize("form", ["lustre://{}", "file://{}", "{}"])
def test_data_that_is_not_on_the_mount(box: Container, form: str) -> None:
    """Lesson A4: named, not linked to nowhere; also where both paths are the same."""
    missing = box.folder / "fs" / "none"
    for wanted in (box.folder / "data", missing):
        ended = box.run("echo ran", inputs={str(wanted): form.format(missing)})
        assert (ended.code, ended.out) == (1, "")
        assert f"inputs: {wanted}: {form.format(missing)}: there is no {missing}" in ended.error
        assert not wanted.is_symlink()


def test_a_path_that_the_image_has_is_not_replaced(box: Container) -> None:
    (box.folder / "fs").mkdir()
    (box.folder / "data").mkdir()
    inputs = {str(box.folder / "data"): f"file://{box.folder}/fs"}
    ended = box.run("echo ran", inputs=inputs)
    assert (ended.code, ended.out) == (1, "")
    assert "is in the image already" in ended.error


def test_a_hub_and_a_store_together(box: Container, bucket: Bucket) -> None:
    bucket.put({"x": b"1"})
    with Hub() as hub:
        hub.add("datasets", "org/set", {"train.jsonl": b'{"a": 1}\n'})
        ended = box.run(
            f"cat {box.folder}/set/train.jsonl {box.folder}/x",
            env={**bucket.env, "HF_ENDPOINT": hub.url},
            inputs={
                f"{box.folder}/set": "hf_dataset://org/set",
                f"{box.folder}/x": "s3://bucket/x",
            },
        )
    assert (ended.code, ended.out) == (0, '{"a": 1}\n1'), ended.err


# -- archives


def tar_of(members: dict[str, bytes], mode: str = "w:gz", **modes: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]  # a mode of the parameters
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), modes.get(name.rpartition("/")[2], 0o644)
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo(f"{name.rpartition('/')[0]}/latest")
        link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
        archive.addfile(link)
    return stream.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without the time of day
    return stream.getvalue()


def test_archives_are_opened(box: Container, bucket: Bucket) -> None:
    """Lesson A20: tar and zip, with modes and links, and the disk does not hold them twice."""
    members = {"set/a.txt": b"A", "set/run": b"#!/bin/sh\necho ran\n"}
    bucket.put({"set.tar.gz": tar_of(members, run=0o755), "more.zip": zip_of({"more/z": b"Z"})})
    ended = box.run(
        "cat {config_path}",
        env=bucket.env,
        config_format="json",
        specs={"a": "s3://bucket/set.tar.gz", "b": "s3://bucket/more.zip"},
        inputs={"a": {"type": "file"}, "b": {"type": "file"}},
    )
    assert ended.code == 0, ended.err
    first, second = (box.work / "inputs" / "a" / "set", box.work / "inputs" / "b" / "more")
    assert ended.out.count(str(first)) == ended.out.count(str(second)) == 1
    assert stat.S_IMODE((first / "run").stat().st_mode) == 0o755
    assert (first / "latest").readlink() == Path("a.txt")
    assert (second / "z").read_bytes() == b"Z"
    assert not [path for path in box.work.rglob("*") if path.name.endswith((".gz", ".zip"))]


def test_archives_in_a_folder_are_opened_where_they_lie(box: Container, bucket: Bucket) -> None:
    """Lesson A20: beside each other, or with `extract_to_parent` into the folder itself."""
    bucket.put({"d/one.tar.gz": tar_of({"one/a": b"1"}), "d/plain.txt": b"p"})
    specs = {"a": "s3://bucket/d", "b": "s3://bucket/d"}
    inputs = {"a": {"type": "folder"}, "b": {"type": "folder", "extract_to_parent": True}}
    box.run("true {config_path}", env=bucket.env, specs=specs, inputs=inputs)
    found = box.work / "inputs"
    assert (found / "a" / "one" / "a").read_bytes() == b"1"
    assert (found / "b" / "one" / "a").read_bytes() == b"1"
    assert (found / "a" / "plain.txt").read_bytes() == b"p"


def test_a_hostile_archive_writes_nothing_outside(box: Container, bucket: Bucket) -> None:
    """Lesson A20: its members stay below the folder, or nothing runs."""
    bucket.put({"x.tar.gz": tar_of({"../../../escaped": b"!"})})
    target = box.folder / "data" / "x.tar.gz"
    ended = box.run("echo ran", env=bucket.env, inputs={str(target): "s3://bucket/x.tar.gz"})
    assert (ended.code, ended.out) == (1, "")
    assert "escaped" in ended.error
    assert not list(box.folder.rglob("escaped"))


def test_an_opened_archive_is_not_fetched_again(box: Container, bucket: Bucket) -> None:
    """Lesson A20: the proof is a digest; a changed archive is fetched, an equal one is not."""
    asked = {"specs": {"a": "s3://bucket/x.zip"}, "inputs": ["a"]}
    command = entrypoint(command="true {config_path}", **asked)
    told = []
    for attempt, content in ((1, b"1"), (2, b"1"), (3, b"2")):
        bucket.put({"x.zip": zip_of({"x/v": content, f"x/{content!r}": b""})})
        ended = box.run(command, env={**bucket.env, "TAO_ATTEMPT": str(attempt)})
        told.append("is here already" in ended.err)
        found = box.work / "inputs" / "a" / "x"
        assert (found / "v").read_bytes() == content, ended.err
        assert names_in(found) == [repr(content), "v"], "nothing is left of the one before"
    assert told == [False, True, False]


def test_what_the_store_no_longer_has_goes(box: Container, bucket: Bucket) -> None:
    """Lesson A2: a later attempt has exactly what is there now, and nothing of the job's own."""
    data = box.folder / "data"
    command = entrypoint(
        command=f"ls {data}; touch {data}/own", inputs={str(data): "s3://bucket/in/"}
    )
    bucket.put({"in/a": b"1", "in/b": b"2"})
    assert box.run(command, env=bucket.env).out == "a\nb\n"
    bucket.delete("in/b")
    bucket.put({"in/a": b"new", "in/c": b"3"})
    ended = box.run(command, env={**bucket.env, "TAO_ATTEMPT": "2"})
    assert ended.out == "a\nc\nown\n", ended.err
    assert (data / "a").read_bytes() == b"new"


# -- a mount that mirrors the store


def test_a_mirror_of_the_store_is_used_and_filled(box: Container, bucket: Bucket) -> None:
    """Lesson C4: what one job fetched the next one finds, proven by its digest."""
    bucket.put({"in/a": b"A"})
    mirror = box.folder / "mirror"
    for number in (1, 2):
        data = box.folder / f"data{number}"
        ended = box.run(
            f"cat {data}/a",
            env={**bucket.env, "TAO_JOB_ID": f"job-{number}"},
            inputs={str(data): "s3://bucket/in"},
            mount_path=str(mirror),
        )
        assert (ended.code, ended.out) == (0, "A"), ended.err
        assert ("is here already" in ended.err) is (number == 2)
        assert (data / "a").resolve() == mirror / "bucket" / "in" / "a"


# -- what cannot be


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"relative": "s3://b/k"}, "absolute path"),
        ({"/data/../etc": "s3://b/k"}, r"without \.\."),
        ({"/d": "az://b/k"}, "az:// is not supported.*copy the data to an S3 store"),
        ({"/d": "https://host/x"}, "download it first"),
        ({"/d": ["s3://b/k"]}, "is not a URI"),
    ],
)
def test_wrong_inputs_are_named(inputs: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        entrypoint(command="x", inputs=inputs)


@pytest.mark.parametrize("path", ["mnt", "/mnt/../etc", "${env:MNT}"])
def test_a_mirror_must_be_an_absolute_path(path: str) -> None:
    with pytest.raises(ValidationError, match=r"mount_path: .* must be an absolute path"):
        entrypoint(command="x", inputs={"/d": "s3://b/k"}, mount_path=path)


def test_a_mirror_must_be_a_text() -> None:
    with pytest.raises(SpecTypeError, match="mount_path must be a text, not 5"):
        entrypoint(command="x", inputs={"/d": "s3://b/k"}, mount_path=5)


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"command": "x\0"}, "command"),
        ({"command": "x", "specs": {"a": ["b", "x\0work"]}}, r"specs\.a\[1\]"),
        ({"command": "x", "specs": {"a": {"x\0": 1}}}, r"a key of specs\.a"),
        ({"command": "x", "args": {"a": "\0"}}, r"args\.a"),
        ({"command": "x", "inputs": {"/d": "s3://b/\0"}}, "inputs"),
        ({"command": "x", "outputs": ["/o\0"]}, r"outputs\[0\]"),
    ],
)
def test_a_nul_character_is_refused(asked: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=f"^{where}.*: a NUL character"):
        entrypoint(**asked)


def test_unset_inputs_are_not_staged(box: Container) -> None:
    """Lesson A19: `None` and "" mean that there is none."""
    ended = box.run("echo ran", inputs={str(box.folder / "a"): None, str(box.folder / "b"): ""})
    assert (ended.code, ended.out) == (0, "ran\n"), ended.err
    assert not Path(box.folder / "a").exists()
