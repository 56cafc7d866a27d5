"""Of a folder only what an annotation file refers to, as a whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from entrypoints import PATH, Container, entrypoint, files_below
from stores import Bucket

from lab.faults import FaultProxy

VIDEOS = {f"videos/{name}": name.encode() for name in ("a.mp4", "deep/b.mp4", "c.mp4", "d.mp4")}
COCO = {
    "info": {"year": 2026},
    "images": [{"id": 1, "file_name": "a.mp4"}, {"id": 2, "file_name": "deep/b.mp4"}],
    "annotations": [{"id": 1, "image_id": 1}],
}


def annotation(kind: str) -> bytes:
    records = [{"video": "a.mp4", "n": 1}, {"video": "deep/b.mp4", "n": 2}]
    return {
        "list.json": json.dumps(records),
        "coco.json": json.dumps(COCO),
        "lines.jsonl": "\n".join(map(json.dumps, records)) + "\n",
        "table.csv": "n,video\n1,a.mp4\n2,deep/b.mp4\n",
    }[kind].encode()


def fetched(
    box: Container, bucket: Bucket, inputs: dict[str, Any], **more: Any
) -> dict[str, bytes]:
    """The files of the folder after a run."""
    specs = {"ann": "s3://bucket/ann", "data": "s3://bucket/videos", **more}
    ended = box.run("true {config_path}", env=bucket.env, specs=specs, inputs=inputs)
    assert ended.code == 0, ended.err
    return files_below(box.work / "inputs" / "data")


@pytest.mark.parametrize("order", ["annotation first", "folder first"])
@pytest.mark.parametrize("kind", ["list.json", "coco.json", "lines.jsonl", "table.csv"])
def test_formats_and_orders(box: Container, bucket: Bucket, kind: str, order: str) -> None:
    """Lesson A11: lists, COCO, JSON lines and CSV, whichever is declared first."""
    bucket.put({**VIDEOS, f"ann/{kind}": annotation(kind)})
    key = "file_name" if kind == "coco.json" else "video"
    inputs = {
        "ann": {"type": "file"},
        "data": {"type": "folder", "selective": {"annotation": "ann", "keys": [key]}},
    }
    if order == "folder first":
        inputs = dict(reversed(inputs.items()))
    found = fetched(box, bucket, inputs, ann=f"s3://bucket/ann/{kind}")
    assert found == {"a.mp4": b"a.mp4", "deep/b.mp4": b"deep/b.mp4"}


def test_several_keys_and_several_annotation_files(box: Container, bucket: Bucket) -> None:
    """Lesson A11: every key counts, not the first; lists of paths, and folders, too."""
    records = [{"video": "a.mp4", "extra": {"clips": ["c.mp4"]}}, {"video": None}]
    bucket.put({**VIDEOS, "ann/1.json": json.dumps(records).encode()})
    bucket.put({"ann/2.json": json.dumps([{"video": "deep"}]).encode()})
    found = fetched(
        box,
        bucket,
        {
            "ann": {"type": "list"},
            "data": {"selective": {"annotation": "ann", "keys": ["video", "extra.clips"]}},
        },
        ann=["s3://bucket/ann/1.json", "s3://bucket/ann/2.json"],
    )
    assert set(found) == {"a.mp4", "c.mp4", "deep/b.mp4"}


def test_each_element_goes_by_its_own_annotation(box: Container, bucket: Bucket) -> None:
    """Lesson A11: with `[*]` in both."""
    bucket.put(VIDEOS)
    for number, name in enumerate(("a.mp4", "c.mp4")):
        bucket.put({f"ann/{number}.json": json.dumps([{"video": name}]).encode()})
    sources = [
        {"ann": f"s3://bucket/ann/{number}.json", "dir": "s3://bucket/videos"} for number in (0, 1)
    ]
    ended = box.run(
        "cat {config_path}",
        env=bucket.env,
        config_format="json",
        specs={"sources": sources},
        inputs={
            "sources[*].ann": {"type": "file"},
            "sources[*].dir": {"selective": {"annotation": "sources[*].ann", "keys": ["video"]}},
        },
    )
    assert ended.code == 0, ended.err
    for name, source in zip(("a.mp4", "c.mp4"), json.loads(ended.out)["sources"], strict=True):
        assert (Path(source["dir"]) / name).read_bytes() == name.encode()


@pytest.mark.parametrize("name", ["../escaped", "/etc/cron.d/escaped", "deep/../../escaped"])
def test_annotations_cannot_lead_out_of_the_folder(
    box: Container, bucket: Bucket, name: str
) -> None:
    """Lesson A12: refused with file and value; nothing is written, nothing runs."""
    bucket.put({**VIDEOS, "escaped": b"!", "ann": json.dumps([{"video": name}]).encode()})
    ended = box.run(
        "echo ran {config_path}",
        env=bucket.env,
        specs={"ann": "s3://bucket/ann", "data": "s3://bucket/videos"},
        inputs={"ann": {}, "data": {"selective": {"annotation": "ann", "keys": ["video"]}}},
    )
    assert (ended.code, ended.out) == (1, "")
    assert repr(name) in ended.error
    assert not list(box.folder.rglob("escaped"))


def test_a_reference_to_nothing_is_an_error(box: Container, bucket: Bucket) -> None:
    """Lesson A11: the training would fail on it hours later."""
    bucket.put({**VIDEOS, "ann": json.dumps([{"video": "a.mp4"}, {"video": "no.mp4"}]).encode()})
    ended = box.run(
        "echo ran {config_path}",
        env=bucket.env,
        specs={"ann": "s3://bucket/ann", "data": "s3://bucket/videos"},
        inputs={"ann": {}, "data": {"selective": {"annotation": "ann", "keys": ["video"]}}},
    )
    assert (ended.code, ended.out) == (1, "")
    assert "s3://bucket/videos has no no.mp4 (1 of 2 files" in ended.error


def test_json_that_nothing_refers_to_is_not_read(box: Container, bucket: Bucket) -> None:
    """Lesson C5: a large annotation file that is not even JSON is just bytes."""
    bucket.put({"ann.json": b'{"torn": ' + b"[" * 5000})
    ended = box.run(
        "true {config_path}",
        env=bucket.env,
        specs={"ann": "s3://bucket/ann.json"},
        inputs={"ann": {"type": "file"}},
    )
    assert ended.code == 0, ended.err
    command = entrypoint(command="x {config_path}", specs={"ann": "s3://b/a.json"}, inputs=["ann"])
    from tao_sdk.bundle.command import payload_of

    assert payload_of(command)["inputs"][0]["selective"] == []


def test_only_what_is_chosen_is_asked_for(box: Container, bucket: Bucket) -> None:
    """Lesson A11: one request for each chosen file, none for the others."""
    bucket.put({**VIDEOS, "ann": json.dumps([{"video": "c.mp4"}]).encode()})
    with FaultProxy(bucket.url) as proxy:
        bucket.url = proxy.url
        fetched(
            box,
            bucket,
            {"ann": {}, "data": {"selective": {"annotation": "ann", "keys": ["video"]}}},
        )
        assert proxy.count("GET", "/videos/") == proxy.count("GET", "/videos/c.mp4") == 1


def test_parquet_is_read_with_the_packages_of_the_image(box: Container, bucket: Bucket) -> None:
    """Though the runner itself starts without them."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = box.folder / "table.parquet"
    parquet.write_table(pyarrow.table({"video": ["a.mp4", "deep/b.mp4"]}), path)
    bucket.put({**VIDEOS, "ann/table.parquet": path.read_bytes()})
    inputs = {
        "ann": {"type": "file"},
        "data": {"type": "folder", "selective": {"annotation": "ann", "keys": ["video"]}},
    }
    programs = box.folder / "bin"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    box.env["PATH"] = f"{programs}:{PATH}"
    found = fetched(box, bucket, inputs, ann="s3://bucket/ann/table.parquet")
    assert found == {"a.mp4": b"a.mp4", "deep/b.mp4": b"deep/b.mp4"}
