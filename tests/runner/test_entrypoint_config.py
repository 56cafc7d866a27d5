"""Config mode, as a whole: inputs found, paths written into the spec, the spec read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml
from entrypoints import Container, Ended, entrypoint, names_in
from stores import Bucket

from lab.hub import Hub
from lab.ngc import Ngc
from lab.s3 import KINDS
from tao_sdk.errors import ValidationError
from tao_sdk.script_runner import build_entrypoint

READERS = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}


def spec_of(box: Container, fmt: str = "json", **asked: Any) -> tuple[dict[str, Any], Ended]:
    """The spec as the command finds it."""
    ended = box.run("cat {config_path}", config_format=fmt, **asked)
    assert ended.code == 0, ended.err
    return READERS[fmt](ended.out), ended


@pytest.mark.seed("000.10", "000.15")
@pytest.mark.parametrize("bucket", KINDS, indirect=True)
@pytest.mark.parametrize("fmt", ["toml", "yaml", "json"])
def test_inputs_come_and_the_spec_names_them(box: Container, bucket: Bucket, fmt: str) -> None:
    """Files and folders, in nested places, in every format; other values are as they were."""
    bucket.put({"data/train/a.jpg": b"A", "data/train/deep/b.jpg": b"B", "data/classes.txt": b"x"})
    spec = {
        "dataset": {"train": "s3://bucket/data/train", "classes": "s3://bucket/data/classes.txt"},
        "train": {"lr": 1e-4, "name": 'it\'s "quoted" \\ ü\n', "gpus": [0, 1], "amp": True},
    }
    box.env = bucket.env
    found, _ = spec_of(
        box,
        fmt,
        specs=spec,
        inputs={"dataset.train": {"type": "folder"}, "dataset.classes": {"type": "file"}},
    )
    inputs = box.work / "inputs"
    assert found["train"] == spec["train"]
    assert found["dataset"] == {
        "train": str(inputs / "dataset_train"),
        "classes": str(inputs / "dataset_classes" / "classes.txt"),
    }
    assert (inputs / "dataset_train" / "deep" / "b.jpg").read_bytes() == b"B"
    assert (inputs / "dataset_classes" / "classes.txt").read_bytes() == b"x"


def test_undeclared_uris_are_warned_about_before_and_during_the_run(
    box: Container, bucket: Bucket
) -> None:
    """Lesson A10: once when it is built, once in the log, both naming place and URI."""
    asked = {
        "command": "cat {config_path}",
        "specs": {"a": "s3://bucket/a", "b": [{"c": "s3://bucket/other"}]},
        "inputs": ["a"],
    }
    with pytest.warns(UserWarning, match=r"b\[0\]\.c = s3://bucket/other.*b\[\*\]\.c"):
        command = build_entrypoint(**asked)["command"]
    bucket.put({"a": b"1"})
    ended = box.run(command, env=bucket.env)
    assert ended.code == 0, ended.err
    assert "b[0].c = s3://bucket/other" in ended.err
    assert 's3://bucket/other"' in ended.out
    assert "s3://bucket/other" in " ".join(box.record()["warnings"])


def test_every_element_of_a_list(box: Container, bucket: Bucket) -> None:
    """Lesson A10: `[*]` means the second data source, too."""
    bucket.put({f"set{n}/images/{n}.jpg": b"%d" % n for n in range(3)})
    sources = [{"image_dir": f"s3://bucket/set{n}/images"} for n in range(3)]
    box.env = bucket.env
    found, ended = spec_of(
        box,
        specs={"dataset": {"sources": sources}},
        inputs={"dataset.sources[*].image_dir": {"type": "folder"}},
    )
    folders = [Path(source["image_dir"]) for source in found["dataset"]["sources"]]
    assert [names_in(folder) for folder in folders] == [["0.jpg"], ["1.jpg"], ["2.jpg"]]
    assert "not declared" not in ended.err


def test_paths_of_every_form(box: Container, bucket: Bucket) -> None:
    """Lesson A18: nested indices, hyphens, and names with dots are found, none silently not."""
    bucket.put({"x": b"1"})
    uri = "s3://bucket/x"
    box.env = bucket.env
    found, _ = spec_of(
        box,
        specs={"a": [[{"b": uri}]], "my-list": [uri], "deep": {"file.name": uri}, "l": [uri, uri]},
        inputs=["a[0][0].b", "my-list[0]", 'deep["file.name"]', "l"],
    )
    places = [found["a"][0][0]["b"], found["my-list"][0], found["deep"]["file.name"], *found["l"]]
    assert all(Path(place).read_bytes() == b"1" for place in places), places


@pytest.mark.parametrize(
    ("specs", "key", "message"),
    [
        ({"a": [1]}, "a[", r"'a\[' is not a path"),
        ({"out": None, "a": 1}, "out.deep.x", "out should be a mapping but is null"),
        ({"out": []}, "out[2].x", r"out has 0 items, so \[2\] is not there"),
    ],
)
def test_wrong_paths_are_named_at_build_time(specs: dict[str, Any], key: str, message: str) -> None:
    """Lesson A18: no padding with empty items, no bare TypeError."""
    with pytest.raises(ValidationError, match=message):
        entrypoint(command="x", specs=specs, inputs=[key], outputs={key: {"type": "folder"}})


@pytest.mark.parametrize("declared", [{"a": None, "b": None}, ["a", "b"]])
def test_declarations_without_options(box: Container, bucket: Bucket, declared: Any) -> None:
    """Lesson A19: YAML's `key:` is None; an input that is not set is simply not set."""
    bucket.put({"x": b"1"})
    box.env = bucket.env
    found, _ = spec_of(box, specs={"a": "s3://bucket/x", "b": None}, inputs=declared)
    assert Path(found["a"]).read_bytes() == b"1"
    assert found["b"] is None


def test_an_optional_input_that_is_not_there_is_left_out(box: Container, bucket: Bucket) -> None:
    bucket.put({"x": b"1"})
    box.env = bucket.env
    found, ended = spec_of(
        box,
        specs={"a": "s3://bucket/missing", "l": ["s3://bucket/x", "s3://bucket/no"]},
        inputs={"a": {"optional": True}, "l": {"optional": True}},
    )
    assert "a" not in found
    assert [Path(item).name for item in found["l"]] == ["x"]
    assert ended.err.count("the input is optional: left out") == 2


@pytest.mark.parametrize("uri", ["s3://bucket/no/such", "s3://bucket/no/such/", "s3://nobucket/x"])
def test_what_is_missing_stops_the_job_before_its_command(
    box: Container, bucket: Bucket, uri: str
) -> None:
    """Lesson A4: an error that names the URI, not an empty folder."""
    ended = box.run("echo ran", env=bucket.env, specs={"a": uri}, inputs=["a"])
    assert ended.code == 1
    assert ended.out == ""
    assert uri.rstrip("/") in ended.error
    assert not list((box.work / "inputs").rglob("*"))
    assert uri.rstrip("/") in box.record()["error"]


@pytest.mark.parametrize("scheme", ["lustre://", "slurm://", "file://"])
def test_data_on_a_mount_is_used_where_it_is(box: Container, scheme: str) -> None:
    """Lesson A9: without a copy, and without any store."""
    data = box.folder / "fs" / "set one"
    data.mkdir(parents=True)
    spec = {"a": f"{scheme}{data}", "out": ""}
    found, ended = spec_of(box, specs=spec, inputs=["a"], outputs=["out"])
    assert found["a"] == str(data)
    assert "staging" not in ended.err


@pytest.mark.parametrize("scheme", ["lustre://", "slurm://", "file://"])
def test_declared_data_that_is_not_on_the_mount(box: Container, scheme: str) -> None:
    """Lesson A4: the key and the URI are named, and the command does not run."""
    uri = f"{scheme}{box.folder}/none"
    asked: dict[str, Any] = {"specs": {"a": [uri]}, "config_format": "json"}
    ended = box.run("cat {config_path}", inputs={"a": {}}, **asked)
    assert (ended.code, ended.out) == (1, "")
    assert f"inputs: a[0]: {uri}: there is no {box.folder}/none" in ended.error
    ended = box.run("cat {config_path}", inputs={"a": {"optional": True}}, **asked)
    assert f"{box.folder}/none" in ended.out


def test_a_cluster_uri_needs_no_declaration(box: Container) -> None:
    """Lesson A9: it can mean nothing else."""
    found, _ = spec_of(box, specs={"x": ["lustre://fs/a", "slurm:///fs/b", "http://c/d"]})
    assert found["x"] == ["/fs/a", "/fs/b", "http://c/d"]


@pytest.mark.seed("000.22")
@pytest.mark.parametrize("bucket", KINDS, indirect=True)
def test_slashes_that_were_doubled_by_mistake(box: Container, bucket: Bucket) -> None:
    """Of folders and of files; as joining texts leaves them."""
    bucket.put({"data/a/b.txt": b"1"})
    box.env = bucket.env
    uris = {
        "a": "s3://bucket//data//a/",
        "b": "s3://bucket//data//a",
        "c": "s3://bucket//data//a//b.txt",
    }
    found, _ = spec_of(box, specs=uris, inputs=[*uris])
    assert names_in(found["a"]) == names_in(found["b"]) == ["b.txt"]
    assert Path(found["c"]).read_bytes() == b"1"


def test_the_order_of_keys_is_the_callers(box: Container) -> None:
    """Lesson A17: nothing is sorted on the way."""
    spec = {"z": 1, "a": {"y": 1, "b": 2}, "m": [{"q": 1, "c": 2}]}
    for fmt in ("yaml", "json"):
        found, _ = spec_of(box, fmt, specs=spec)
        assert json.dumps(found) == json.dumps(spec)


def test_toml_has_no_null(box: Container) -> None:
    """Lesson A16: refused with its place, unless an output's path goes there; the rest is whole."""
    spec = {"b": [[{"c": 1}]], "d": [1, "x", {"k": 1}], "results": {"dir": None}}
    found, _ = spec_of(box, "toml", specs=spec, outputs=["results.dir"])
    assert found == {**spec, "results": {"dir": str(box.work / "results_dir")}}
    for wrong, place in (
        ({"a": {"b": None}}, r"\['a'\]\['b'\]"),
        ({"a": [1, None]}, r"\['a'\]\[1\]"),
    ):
        with pytest.raises(TypeError, match=rf"specs{place}: None .* TOML has no null"):
            entrypoint(command="x {config_path}", specs=wrong, config_format="toml")


@pytest.mark.parametrize("fmt", ["toml", "yaml", "json"])
def test_numbers_that_json_has_not(fmt: str) -> None:
    """Lesson A16: infinity is refused with its place, in every format."""
    with pytest.raises(ValueError, match=r"specs\['train'\]\['clip'\]"):
        entrypoint(command="x", specs={"train": {"clip": float("inf")}}, config_format=fmt)


def test_a_chosen_place_and_a_glob(box: Container, bucket: Bucket) -> None:
    bucket.put({"v/a/1.mp4": b"1", "v/b/2.mp4": b"2", "v/b/notes.txt": b"n", "w.pth": b"w"})
    chosen = box.folder / "models"
    box.env = bucket.env
    found, _ = spec_of(
        box,
        specs={"videos": "s3://bucket/v/*/*.mp4", "w": "s3://bucket/w.pth"},
        inputs={"videos": {"type": "local_glob"}, "w": {"container_path": str(chosen)}},
    )
    assert found["w"] == str(chosen / "w.pth")
    matched = sorted(Path("/").glob(found["videos"][1:]))
    assert [path.name for path in matched] == ["1.mp4", "2.mp4"]
    assert not list(box.work.rglob("notes.txt"))


def test_variables_of_the_container(box: Container) -> None:
    """What a secret is, the client need not know: the spec that holds it is private."""
    found, ended = spec_of(
        box,
        specs={"wandb": {"key": "${env:WANDB}", "url": "https://${env:USER_NAME}@host"}},
        env={"WANDB": "s3cr3t-value", "USER_NAME": "me"},
    )
    assert found == {"wandb": {"key": "s3cr3t-value", "url": "https://me@host"}}
    assert (box.work / "spec.json").stat().st_mode & 0o777 == 0o600
    assert "s3cr3t-value" not in ended.err
    missing = box.run("x {config_path}", specs={"wandb": {"key": "${env:NO_SUCH}"}})
    assert missing.code == 1
    assert "specs: wandb.key: the variable NO_SUCH is not set" in missing.error


# -- models


def test_models_of_a_hub_come_from_anywhere_in_the_spec(box: Container) -> None:
    """Declared or not, in lists and mappings, a single checkpoint by its file."""
    with Hub() as hub, Ngc() as ngc:
        hub.add("models", "org/net", {"config.json": b"{}", "model.safetensors": b"w" * 2000})
        hub.add("models", "org/old", {"README.md": b"-", "best.pth": b"p" * 2000})
        ngc.keys["key-of-me"] = "mine"
        ngc.add("org/mine/team/vision", "detector", "1.0", {"model.pth": b"n" * 3000})
        box.env = {"HF_ENDPOINT": hub.url, "NGC_KEY": "key-of-me", **ngc.env}
        found, _ = spec_of(
            box,
            specs={
                "model": {"backbone": "hf_model://org/net"},
                "list": [{"w": "hf_model://org/old"}, "ngc://mine/vision/detector:1.0"],
            },
        )
    assert names_in(found["model"]["backbone"]) == ["config.json", "model.safetensors"]
    assert Path(found["list"][0]["w"]).read_bytes() == b"p" * 2000
    assert Path(found["list"][1]).read_bytes() == b"n" * 3000
    assert found["model"]["backbone"].startswith(str(box.work / "ptm"))


def test_half_a_snapshot_is_completed(box: Container) -> None:
    """Lesson A5: one file that is there does not make a model."""
    with Hub() as hub:
        hub.add("models", "org/net", {"config.json": b"{}", "model.safetensors": b"w" * 2000})
        there = box.work / "ptm" / "m"
        there.mkdir(parents=True)
        (there / "config.json").write_bytes(b"{}")
        box.env = {"HF_ENDPOINT": hub.url}
        found, _ = spec_of(box, specs={"m": "hf_model://org/net"})
    assert names_in(found["m"]) == ["config.json", "model.safetensors"]
