"""What annotation files refer to."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.selective import match_references, parse_references


def written(folder: Path, name: str, content: Any) -> str:
    path = folder / name
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("document", "keys", "references"),
    [
        ([{"v": "a.mp4"}, {"v": "d/b.mp4"}, {"v": "a.mp4"}], ["v"], ["a.mp4", "d/b.mp4"]),
        ([{"i": "1"}, {"v": "2"}, {"i": ""}, {"i": None}], ["i", "v"], ["1", "2"]),
        ([{"video": ["a", "b"]}, {"video": [["c"]]}], ["video"], ["a", "b", "c"]),
        ([{"media": {"file": "a"}}, {"media": [{"file": "b"}]}], ["media.file"], ["a", "b"]),
        ([{"a.b": "dotted"}], ["a.b"], ["dotted"]),
        ({"images": [{"file_name": "1"}], "annotations": [{"id": 1}]}, ["file_name"], ["1"]),
        ({"images": [{"file_name": "1.jpg"}]}, ["images.file_name"], ["1.jpg"]),
        ({"train": [{"p": "a"}], "val": [{"p": "b"}]}, ["p"], ["a", "b"]),
        ({"clip1": {"p": "a"}, "clip2": {"p": "b"}}, ["p"], ["a", "b"]),
        ({"p": ["a", "b"]}, ["p"], ["a", "b"]),
        ([{"p": "./a//b/../c"}], ["p"], ["a/c"]),
    ],
)
def test_json(tmp_path: Path, document: Any, keys: list[str], references: list[str]) -> None:
    """Lesson A11: COCO, several keys, nested keys, lists."""
    path = written(tmp_path, "a.json", document)
    assert sorted(parse_references(path, "json", keys)) == sorted(references)


def test_jsonl(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", '\ufeff{"p": "a"}\n\n{"q": {"r": "b"}}\n')
    assert parse_references(path, "", ["p", "q.r"]) == ["a", "b"]
    path = written(tmp_path, "b.jsonl", '{"p": "a"}\n{"p": \n')
    with pytest.raises(RunnerError, match=r"b\.jsonl, line 2"):
        parse_references(path, "jsonl", ["p"])


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["p", "label"], ["d/a,1.jpg", "x"], ["", "y"], ["b.jpg", "z"]])
    assert parse_references(str(path), "CSV", ["p"]) == ["d/a,1.jpg", "b.jpg"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv"])
def test_what_is_not_utf8(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'p\n"caf\xe9"\n')
    with pytest.raises(RunnerError, match=rf"{name} is not (UTF-8 text|valid JSON)"):
        parse_references(str(tmp_path / name), "", ["p"])


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "a.parquet")
    rows = [{"p": "a", "m": {"f": ["b", "c"]}, "n": 1}, {"p": None, "m": {"f": []}, "n": 2}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert sorted(parse_references(path, "", ["p", "m.f"])) == ["a", "b", "c"]


def test_parquet_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(RunnerError, match="needs pyarrow in the image"):
        parse_references(str(tmp_path / "a.parquet"), "parquet", ["p"])


@pytest.mark.parametrize(
    "value",
    ["/etc/cron.d/x", "../x", "a/../../x", "..", ".", "s3://b/x", "//x", "a\0b", 7, {"x": 1}],
)
def test_references_stay_below_their_folder(tmp_path: Path, value: object) -> None:
    """Lesson A12: a hostile annotation cannot choose where files are written."""
    path = written(tmp_path, "evil.json", [{"p": "fine"}, {"p": value}])
    with pytest.raises(RunnerError) as caught:
        parse_references(path, "json", ["p"])
    assert str(caught.value).startswith(f"{path}: p: {value!r} ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", [], "no record has a file name under p"),
        ("a.json", [{"other": "x"}], "no record has a file name under p"),
        ("a.json", "[{", "is not valid JSON"),
        ("a.csv", "other\nx\n", "no record has a file name under p"),
        ("a.xml", "", "'xml' is none of json, jsonl, csv, parquet"),
    ],
)
def test_files_that_refer_to_nothing(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(RunnerError, match=message):
        parse_references(written(tmp_path, name, content), "", ["p"])


def test_matching() -> None:
    names = ["a.mp4", "d/a.mp4", "d/e/f.jpg", "d/e/g.jpg", "z"]
    assert match_references(["d/a.mp4"], names) == (["d/a.mp4"], [])
    assert match_references(["d/e", "z"], names) == (["d/e/f.jpg", "d/e/g.jpg", "z"], [])
    assert match_references(["f.jpg", "nothing"], names) == ([], ["f.jpg", "nothing"])
