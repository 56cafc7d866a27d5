"""How URIs of the two model registries are read."""

from __future__ import annotations

import pytest

from tao_sdk.runner import hub, ngc
from tao_sdk.runner.errors import RunnerError

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("hf_model://gpt2", ("model", "gpt2", "main", "")),
        ("hf_model://gpt2/", ("model", "gpt2", "main", "")),
        ("hf_model://gpt2@v1", ("model", "gpt2", "v1", "")),
        ("hf_model://gpt2@main/config.json", ("model", "gpt2", "main", "config.json")),
        ("hf_model://org/name", ("model", "org/name", "main", "")),
        ("hf_model://org/name/", ("model", "org/name", "main", "")),
        ("hf_model://org/name/a/b.bin", ("model", "org/name", "main", "a/b.bin")),
        ("hf_model://org/name/a/", ("model", "org/name", "main", "a")),
        ("hf_model://org/name@v1.0", ("model", "org/name", "v1.0", "")),
        (f"hf_model://org/name@{SHA}/a", ("model", "org/name", SHA, "a")),
        ("hf_model://org/name@refs%2Fpr%2F1/a b", ("model", "org/name", "refs/pr/1", "a b")),
        ("hf_model://org/name@refs/pr/1/a", ("model", "org/name", "refs/pr/1", "a")),
        ("hf_dataset://o/d@refs/convert/parquet", ("dataset", "o/d", "refs/convert/parquet", "")),
        ("hf_dataset://o/d@feature%2Fx/a@b.txt", ("dataset", "o/d", "feature/x", "a@b.txt")),
    ],
)
def test_hub_uris(uri: str, parts: tuple[str, str, str, str]) -> None:
    assert hub.parse(uri) == parts


@pytest.mark.parametrize(
    "uri",
    [
        "hf_model://",
        "hf_model:///name",
        "hf_model://org/name@",
        "hf_model://org/na me",
        "hf_model://org/name?revision=v1",
        "hf_model://org/name/../other",
        "hf_space://org/name",
        "s3://bucket/key",
    ],
)
def test_hub_uris_that_are_none(uri: str) -> None:
    with pytest.raises(RunnerError, match="hf_model://org/name@revision") as caught:
        hub.parse(uri)
    assert uri in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("ngc://nvidia/peoplenet:v1", ("nvidia", "", "peoplenet", "v1")),
        ("ngc://nvidia/tao/pretrained_dino:v1", ("nvidia", "tao", "pretrained_dino", "v1")),
        ("ngc://nim/nvidia/m:0.11.1+ba-l40", ("nim", "nvidia", "m", "0.11.1+ba-l40")),
    ],
)
def test_ngc_uris(uri: str, parts: tuple[str, str, str, str]) -> None:
    assert ngc.parse(uri) == parts


@pytest.mark.parametrize("uri", ["ngc://", "ngc://model:v1", "ngc://a/b/c/d:v1", "ngc://a/b:v:w"])
def test_ngc_uris_that_are_none(uri: str) -> None:
    with pytest.raises(RunnerError, match="ngc://org/team/model:version") as caught:
        ngc.parse(uri)
    assert uri in str(caught.value)


def test_an_ngc_uri_without_a_version_says_so() -> None:
    with pytest.raises(
        RunnerError, match="names no version; write ngc://nvidia/tao/dino:<version>"
    ):
        ngc.parse("ngc://nvidia/tao/dino")
