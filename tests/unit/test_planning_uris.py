"""URIs: what is fetched, what is already there, what is refused and what to do instead."""

from __future__ import annotations

import pytest

from tao_sdk.planning.uris import is_remote, mount_target, parse_s3, unsupported
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.uris import local_path, scheme_of


@pytest.mark.parametrize(
    ("value", "scheme"),
    [
        ("s3://b/k", "s3"),
        ("S3://b/k", "s3"),
        ("hf_model://owner/name", "hf_model"),
        ("abfs+x://c", "abfs+x"),
        ("/plain/path", ""),
        ("relative", ""),
        ("a text about s3://b", ""),
        ("C:/windows", ""),
        ("", ""),
        (None, ""),
        (3, ""),
        (["s3://b"], ""),
    ],
)
def test_scheme(value: object, scheme: str) -> None:
    assert scheme_of(value) == scheme


def test_what_must_be_fetched() -> None:
    for uri in ("s3://b/k", "hf_model://o/n", "hf_dataset://o/n", "ngc://o/m:1"):
        assert is_remote(uri)
    for value in ("lustre:///p", "slurm:///p", "file:///p", "/p", "p", "gs://b", None):
        assert not is_remote(value)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("lustre:///lustre/fsw/data", "/lustre/fsw/data"),
        ("lustre://lustre/fsw/data", "/lustre/fsw/data"),
        ("slurm:///lustre/x/", "/lustre/x/"),
        ("file:///data/a b%20c", "/data/a b%20c"),
        ("file://localhost/data", "/data"),
        ("/data/x", "/data/x"),
    ],
)
def test_paths_that_are_used_in_place(uri: str, path: str) -> None:
    """Lesson A9: lustre://, the form prescribed for clusters, works."""
    assert local_path(uri) == path


@pytest.mark.parametrize("uri", ["file://server/share", "lustre://", "s3://b/k", "relative"])
def test_no_path_in_place(uri: str) -> None:
    with pytest.raises(RunnerError, match=uri):
        local_path(uri)


@pytest.mark.seed("000.22")
@pytest.mark.parametrize(
    ("uri", "bucket", "key"),
    [
        ("s3://b/k/x", "b", "k/x"),
        ("s3://b//k//x/", "b", "k/x/"),
        ("s3://b", "b", ""),
        ("s3://b/", "b", ""),
        ("S3://b/K", "b", "K"),
    ],
)
def test_bucket_and_key(uri: str, bucket: str, key: str) -> None:
    assert parse_s3(uri) == (bucket, key)


@pytest.mark.parametrize("uri", ["s3:///k", "s3://", "gs://b/k", "/b/k"])
def test_no_bucket(uri: str) -> None:
    with pytest.raises(RunnerError, match="write s3://BUCKET/KEY"):
        parse_s3(uri)


def test_mount_mirrors_the_store() -> None:
    assert mount_target("/cache", "s3://b/data//x/") == "/cache/b/data/x"
    with pytest.raises(RunnerError, match=r"'\.\.'"):
        mount_target("/cache", "s3://b/../../etc")


@pytest.mark.parametrize(
    ("uri", "advice"),
    [
        ("gs://b/k", "copy the data to an S3 store"),
        ("az://c/k", "copy the data to an S3 store"),
        ("abfs://c/k", "copy the data to an S3 store"),
        ("https://host/x.tar", "download it first"),
        ("hf://nvidia/x", "write hf_model://OWNER/NAME"),
        ("s3a://b/k", "write s3://BUCKET/KEY"),
        ("webdav://x", "use one of s3://, hf_model://"),
    ],
)
def test_a_refusal_says_what_to_do(uri: str, advice: str) -> None:
    message = str(unsupported(uri, "dataset.images"))
    assert message.startswith(f"dataset.images: {uri}: ")
    assert advice in message
