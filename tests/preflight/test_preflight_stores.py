"""Preflight of data in object stores, on whichever platform: no aws program is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from launches import (
    CANARIES,
    COCO,
    RECORDS,
    Broken,
    Launch,
    assert_names_it,
    assert_passes,
    broken,
    isolate,
)

from lab.hub import Hub
from lab.s3 import KINDS, Bucket, fresh_bucket


class StoreLaunch(Launch):
    """Data in a bucket."""

    bucket: Bucket


@pytest.fixture(params=KINDS)
def launch(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreLaunch]:
    isolate(monkeypatch, tmp_path)
    with fresh_bucket(request.param) as bucket:
        bucket.put("train/coco.json", json.dumps(COCO).encode())
        lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
        bucket.put("eval/annotations.jsonl", lines.encode())
        bucket.put("train/images/0.jpg", b"0")
        for name, value in bucket.env.items():
            monkeypatch.setenv(name, value)
        launch = StoreLaunch(
            monkeypatch,
            tmp_path,
            platform="local",
            gpu_count=0,
            paths={
                "train_annotation": f"{bucket.uri}/train/coco.json",
                "val_annotation": f"{bucket.uri}/eval/annotations.jsonl",
                "train_media": f"{bucket.uri}/train/images",
            },
            required_fields={"train_annotation": ("bbox",), "val_annotation": ("video_fps",)},
            effective_batch={"val_annotation": (3, 4)},
        )
        launch.bucket = bucket
        # Whoever looks for the aws program finds none.
        monkeypatch.setenv("PATH", str(tmp_path))
        yield launch


@pytest.mark.seed("001.11", "004.4")
def test_all_is_well(launch: StoreLaunch) -> None:
    keys = launch.bucket.list_keys()
    found = assert_passes(launch.run())
    assert found["path:train_media"].message.endswith("/train/images: a folder")
    assert "records=40" in found["path:train_annotation"].message
    assert found["fields:val_annotation"].message == "video_fps in 12 of 12 records"
    assert found["batch:val_annotation"].status == "passed"
    assert launch.bucket.list_keys() == keys


def test_without_access_only_credentials_are_looked_at(launch: StoreLaunch) -> None:
    launch.set("S3_ENDPOINT_URL", "http://127.0.0.1:1")
    launch.ask(skip_platform_access=True)
    found = assert_passes(launch.run())
    assert found["s3.credentials"].status == "passed"
    assert found["path:train_media"].status == "skipped"
    launch.set("SECRET_KEY", None)
    assert [check.name for check in launch.run().failures] == ["s3.credentials"]


def _store_away(launch: StoreLaunch) -> None:
    launch.ask(
        paths={"train_media": launch.asked["paths"]["train_media"]},
        required_fields={},
        effective_batch={},
    )
    launch.set("S3_ENDPOINT_URL", "http://127.0.0.1:1")


def _lacking(launch: StoreLaunch) -> None:
    launch.bucket.put("train/coco.json", json.dumps({"data": [{"id": 1}]}).encode())


@pytest.mark.seed("001.9", "001.11")
@broken(
    Broken(
        "no key", lambda it: it.set("ACCESS_KEY", None), "s3.credentials", "not set: ACCESS_KEY"
    ),
    Broken("store away", _store_away, "path:train_media", "S3_ENDPOINT_URL"),
    Broken(
        "folder missing",
        lambda it: it.path("train_media", f"{it.bucket.uri}/train/imagess"),
        "path:train_media",
        "is not there",
    ),
    Broken(
        "bucket missing",
        lambda it: it.path("train_media", "s3://no-such-bucket-of-ours/x"),
        "path:train_media",
        "no-such-bucket-of-ours",
    ),
    Broken("field missing", _lacking, "fields:train_annotation", "record 1 has no bbox"),
    Broken(
        "batch too large",
        lambda it: it.ask(effective_batch={"val_annotation": (4, 4)}),
        "batch:val_annotation",
        "12 records",
    ),
)
def test_the_one_thing_broken_is_named(launch: StoreLaunch, variant: Broken) -> None:
    assert_names_it(launch, variant)


def test_half_a_pair_beside_a_whole_one(launch: StoreLaunch) -> None:
    """The job is given the whole pair under the names of the half one: the client uses it, too."""
    launch.set("AWS_SECRET_ACCESS_KEY", "the-half-of-another-pair")
    launch.set("AWS_ACCESS_KEY_ID", None)
    assert_passes(launch.run())


def test_a_wrong_key_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store that checks signatures."""
    isolate(monkeypatch, tmp_path)
    wrong = "canary/wrong+secret/0123456789"
    with fresh_bucket("rclone") as bucket:
        bucket.put("x", b"1")
        for name, value in {**bucket.env, "SECRET_KEY": wrong}.items():
            monkeypatch.setenv(name, value)
        paths = {"data": f"{bucket.uri}/x"}
        launch = Launch(monkeypatch, tmp_path, platform="local", gpu_count=0, paths=paths)
        report = launch.run()
    assert [check.name for check in report.failures] == ["path:data"]
    assert "SECRET_KEY" in report.failures[0].remedy
    assert wrong not in json.dumps(report.as_json())


@pytest.mark.parametrize(
    ("uri", "failures"),
    [
        ("hf_dataset://org/data", []),
        ("hf_dataset://org/nothing", ["path:data"]),
        ("hf_dataset://org/gated", ["path:data"]),
    ],
)
def test_registries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, failures: list[str]
) -> None:
    isolate(monkeypatch, tmp_path)
    with Hub() as hub:
        hub.tokens.add(CANARIES["HF_TOKEN"])
        hub.add("datasets", "org/data", {"train.json": b"[]"})
        hub.add("datasets", "org/gated", {"train.json": b"[]"}, gated=True)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        launch = Launch(monkeypatch, tmp_path, platform="local", gpu_count=0, paths={"data": uri})
        report = launch.run()
    assert [check.name for check in report.failures] == failures
    assert all(check.remedy for check in report.failures)
