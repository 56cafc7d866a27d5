"""`check_path` and `list_path`: what a client asks before it submits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import Bucket

from lab.faults import Fault, FaultProxy
from lab.hub import Hub
from lab.s3 import KINDS
from tao_sdk import LocalSDK
from tao_sdk.errors import CredentialError, StorageError, TaoError

pytestmark = pytest.mark.seed("000.22")


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSDK]:
    for name in ("ACCESS_KEY", "SECRET_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with LocalSDK(state_file=tmp_path / "s.json", work_dir=tmp_path / "jobs") as made:
        yield made


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in bucket.env.items():
        monkeypatch.setenv(name, value)
    bucket.put({"data/a.txt": b"1", "data/deep/b.txt": b"2", "data2/c": b"3"})
    return bucket


@pytest.mark.parametrize("bucket", KINDS, indirect=True)
def test_what_is_there(sdk: LocalSDK, store: Bucket) -> None:
    """Files, folders and buckets; with slashes too many, too."""
    for uri in (
        "s3://bucket/data",
        "s3://bucket/data/",
        "s3://bucket//data//deep/",
        "s3://bucket/data/a.txt",
        "s3://bucket//data//a.txt",
        "s3://bucket",
        "s3://bucket/",
    ):
        assert sdk.check_path(uri), uri


@pytest.mark.parametrize("bucket", KINDS, indirect=True)
def test_what_is_not_there(sdk: LocalSDK, store: Bucket) -> None:
    """Half a name is not a folder; that there is no such bucket is an answer, too."""
    for uri in (
        "s3://bucket/dat",
        "s3://bucket/data/a",
        "s3://bucket/data/a.txt/",
        "s3://nobody/x",
    ):
        assert sdk.check_path(uri) is False, uri


@pytest.mark.parametrize("bucket", KINDS, indirect=True)
def test_listing(sdk: LocalSDK, store: Bucket) -> None:
    """Names directly below, folders with a slash; of a file the file itself."""
    for uri in ("s3://bucket/data", "s3://bucket/data/", "s3://bucket//data//"):
        assert sdk.list_path(uri) == ["a.txt", "deep/"], uri
    assert sdk.list_path("s3://bucket") == ["data/", "data2/"]
    assert sdk.list_path("s3://bucket/data/a.txt") == ["a.txt"]
    with pytest.raises(StorageError, match="s3://bucket/missing"):
        sdk.list_path("s3://bucket/missing")


def test_a_wrong_key_is_an_error_and_not_no(
    sdk: LocalSDK, store: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson W2: "it could not be asked" must not look like "it is not there"."""
    monkeypatch.setenv("SECRET_KEY", "not-the-right-secret")
    for ask in (sdk.check_path, sdk.list_path):
        with pytest.raises(CredentialError, match="s3://bucket") as caught:
            ask("s3://bucket/data")
        assert "not-the-right-secret" not in str(caught.value)


def test_no_key_at_all_is_an_error(
    sdk: LocalSDK, store: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson F14: it is asked for when it is needed, by name."""
    monkeypatch.delenv("ACCESS_KEY")
    monkeypatch.delenv("SECRET_KEY")
    with pytest.raises(CredentialError, match="ACCESS_KEY and SECRET_KEY"):
        sdk.check_path("s3://bucket/data")


@pytest.mark.parametrize("fault", [Fault(status=500), Fault(status=403), Fault(cut_after=0)])
def test_a_store_in_trouble_is_an_error(
    sdk: LocalSDK, store: Bucket, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """Lesson W2: of whatever kind."""
    monkeypatch.setenv("TAO_TRANSFER_ATTEMPTS", "1")
    with FaultProxy(store.url, lambda *_: fault) as proxy:
        monkeypatch.setenv("S3_ENDPOINT_URL", proxy.url)
        for ask in (sdk.check_path, sdk.list_path):
            with pytest.raises(TaoError, match="s3://bucket/data"):
                ask("s3://bucket/data")


def test_a_hub(sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        hub.add("models", "org/net", {"config.json": b"{}", "onnx/model.onnx": b"1"})
        hub.add("models", "org/closed", {"a": b"1"}, gated=True)
        assert sdk.check_path("hf_model://org/net")
        assert sdk.check_path("hf_model://org/net@main/config.json")
        assert sdk.list_path("hf_model://org/net") == ["config.json", "onnx/"]
        assert not sdk.check_path("hf_model://org/net@main/missing.json")
        with pytest.raises(CredentialError, match="gated"):
            sdk.check_path("hf_model://org/closed")


def test_files_of_this_machine(sdk: LocalSDK, tmp_path: Path) -> None:
    """By URI or by path, with slashes too many."""
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "a").touch()
    for path in (
        f"{tmp_path}/d",
        f"{tmp_path}/d/",
        f"file://{tmp_path}/d",
        f"file://{tmp_path}//d/",
    ):
        assert sdk.check_path(path), path
        assert sorted(name.rstrip("/") for name in sdk.list_path(path)) == ["a", "sub"], path
    assert sdk.check_path(f"file://{tmp_path}/missing") is False
    with pytest.raises(TaoError, match="missing"):
        sdk.list_path(f"file://{tmp_path}/missing")


def test_stores_that_are_not_supported(sdk: LocalSDK) -> None:
    """Lesson W2: an error that says what to do, not False."""
    with pytest.raises(TaoError, match="gs://"):
        sdk.check_path("gs://bucket/data")
