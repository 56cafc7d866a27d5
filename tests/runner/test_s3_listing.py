"""What URIs stand for, asked of two real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.faults import Fault, FaultProxy
from lab.s3 import IMPATIENT, KINDS, Bucket, fresh_bucket
from tao_sdk.runner.errors import CredentialError, NotFoundError, RunnerError
from tao_sdk.runner.s3 import S3
from tao_sdk.runner.s3.store import Store
from tao_sdk.storage.s3_questions import delete, exists, list_names

ODD_KEYS = (
    "plain.txt",
    "with space/and more.txt",
    "plus+sign.txt",
    "per%cent%20.txt",
    "tilde~.txt",
    "..almost/...dots",
    "ünïcode/日本語.txt",
    "quote'\"&<>.txt",
    "equals=and?question#hash",
)


@pytest.fixture(params=KINDS)
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    with fresh_bucket(request.param) as made:
        yield made


def paths(bucket: Bucket, uri: str, want: str = "") -> list[str]:
    return sorted(file.path for file in bucket.s3().listing(uri, want).files)


def test_a_folder_ends_at_a_slash(bucket: Bucket) -> None:
    for key in ("data/a", "data/sub/b", "data2/c", "data.txt"):
        bucket.put(key, b"x")
    for uri in (f"{bucket.uri}/data", f"{bucket.uri}/data/"):
        listing = bucket.s3().listing(uri)
        assert listing.is_folder
        assert sorted(file.path for file in listing.files) == ["a", "sub/b"]
    assert paths(bucket, bucket.uri) == ["data.txt", "data/a", "data/sub/b", "data2/c"]


def test_a_file_has_its_size_and_checksum(bucket: Bucket) -> None:
    bucket.put("folder/model.pth", b"hello")
    listing = bucket.s3().listing(f"{bucket.uri}/folder/model.pth")
    assert not listing.is_folder
    (file,) = listing.files
    assert (file.path, file.size) == ("model.pth", 5)
    assert file.checksum == "md5:5d41402abc4b2a76b9719d911017c592"
    assert file.uri == f"{bucket.uri}/folder/model.pth"


def test_odd_keys_are_found_by_name_and_in_a_folder(bucket: Bucket) -> None:
    for key in ODD_KEYS:
        bucket.put("odd/" + key, key.encode())
    assert paths(bucket, f"{bucket.uri}/odd") == sorted(ODD_KEYS)
    for key in ODD_KEYS:
        (file,) = bucket.s3().listing(f"{bucket.uri}/odd/{key}", "file").files
        assert file.size == len(key.encode())


def test_a_missing_object_or_folder_is_named(bucket: Bucket) -> None:
    """Lesson A4: a folder that does not exist is an error, not an empty folder."""
    bucket.put("there/file", b"x")
    for uri in ("/nothing", "/nothing/", "/the", "/there/fil", "/there/file/"):
        with pytest.raises(NotFoundError, match=f"{bucket.uri}{uri}: "):
            bucket.s3().listing(bucket.uri + uri)
    for want in ("file", "folder"):
        with pytest.raises(NotFoundError, match="no such object or folder"):
            bucket.s3().listing(f"{bucket.uri}/gone", want)


def test_what_is_wanted_is_a_preference(bucket: Bucket) -> None:
    """Metadata says `file` for folders of images and `folder` for what comes as an archive."""
    bucket.put("images/a.jpg", b"A")
    bucket.put("images.tar.gz", b"archive")
    assert bucket.s3().listing(f"{bucket.uri}/images", "file").is_folder
    archive = bucket.s3().listing(f"{bucket.uri}/images.tar.gz", "folder")
    assert not archive.is_folder
    assert [file.path for file in archive.files] == ["images.tar.gz"]


@pytest.mark.parametrize("want", ["", "file", "folder"])
def test_who_may_not_list_may_still_read(bucket: Bucket, want: str) -> None:
    bucket.put("images.tar.gz", b"archive")
    refuse = Fault(status=403, body=b"<Error><Code>AccessDenied</Code></Error>")

    def script(number: int, method: str, target: str) -> Fault | None:
        return refuse if "list-type" in target else None

    with FaultProxy(bucket.url, script) as proxy:
        assert bucket.s3(proxy.url).listing(f"{bucket.uri}/images.tar.gz", want).files[0].size == 7
        with pytest.raises(CredentialError):
            bucket.s3(proxy.url).listing(f"{bucket.uri}/gone", want)


def test_a_missing_bucket_is_named(bucket: Bucket) -> None:
    for uri in ("s3://no-such-bucket/", "s3://no-such-bucket/key"):
        with pytest.raises(NotFoundError, match="s3://no-such-bucket/"):
            bucket.s3().listing(uri)


def test_double_slashes_are_forgiven(bucket: Bucket) -> None:
    bucket.put("data/sub/a", b"x")
    assert paths(bucket, f"{bucket.uri}//data//sub/") == ["a"]
    assert paths(bucket, f"{bucket.uri}/data//sub//a") == ["a"]
    with pytest.raises(NotFoundError, match="data//other"):
        bucket.s3().listing(f"{bucket.uri}/data//other")


def test_more_objects_than_a_page_holds(bucket: Bucket) -> None:
    expected = [f"{number:04}" for number in range(1203)]
    s3 = bucket.s3()
    for name in expected:
        s3.put_bytes(f"{bucket.uri}/many/{name}", b"")
    assert paths(bucket, f"{bucket.uri}/many/") == expected
    assert list_names(Store(bucket.env), f"{bucket.uri}/many") == expected


class TestMarkers:
    """Objects that stand for folders; rclone makes real folders of them, so only on moto."""

    @pytest.fixture
    def bucket(self) -> Iterator[Bucket]:
        with fresh_bucket("moto") as made:
            yield made

    def test_markers_are_folders(self, bucket: Bucket) -> None:
        bucket.put("data/")
        bucket.put("data/full/")
        bucket.put("data/full/file", b"x")
        bucket.put("data/empty/")
        listing = bucket.s3().listing(f"{bucket.uri}/data")
        assert [file.path for file in listing.files] == ["full/file"]
        assert listing.folders == ("empty",)

    def test_a_marker_alone_is_an_empty_folder(self, bucket: Bucket) -> None:
        bucket.put("alone/")
        listing = bucket.s3().listing(f"{bucket.uri}/alone")
        assert listing.is_folder
        assert not listing.files

    def test_object_and_folder_of_one_name(self, bucket: Bucket) -> None:
        bucket.put("both", b"object")
        bucket.put("both/file", b"below")
        bucket.put("mark")
        bucket.put("mark/file", b"below")
        assert not bucket.s3().listing(f"{bucket.uri}/both").is_folder
        assert bucket.s3().listing(f"{bucket.uri}/both/").is_folder
        assert bucket.s3().listing(f"{bucket.uri}/both", "folder").is_folder
        assert bucket.s3().listing(f"{bucket.uri}/mark").is_folder
        assert not bucket.s3().listing(f"{bucket.uri}/mark", "file").is_folder

    def test_a_key_with_double_slashes_is_taken_as_written(self, bucket: Bucket) -> None:
        bucket.put("a//b", b"double")
        bucket.put("a/b", b"single")
        assert bucket.s3().listing(f"{bucket.uri}/a//b").files[0].size == 6
        with pytest.raises(RunnerError, match="same file on a disk"):
            bucket.s3().listing(f"{bucket.uri}/a/")


class TestOneLevel:
    def test_names_of_a_level(self, bucket: Bucket) -> None:
        for key in ("top/a", "top/b/c", "top/b/d", "topper"):
            bucket.put(key, b"x")
        assert list_names(Store(bucket.env), f"{bucket.uri}/top") == ["a", "b/"]
        assert list_names(Store(bucket.env), bucket.uri) == ["top/", "topper"]

    def test_existence(self, bucket: Bucket) -> None:
        bucket.put("folder/file", b"x")
        store = Store(bucket.env)
        assert exists(store, f"{bucket.uri}/folder/file")
        assert exists(store, f"{bucket.uri}/folder")
        assert exists(store, f"{bucket.uri}/folder/")
        assert not exists(store, f"{bucket.uri}/fold")
        assert not exists(store, f"{bucket.uri}/folder/file/")
        delete(store, f"{bucket.uri}/folder/file")
        assert not exists(store, f"{bucket.uri}/folder/file")


class TestCredentials:
    def test_a_wrong_key_is_explained_without_showing_it(self) -> None:
        with fresh_bucket("rclone") as bucket:
            bucket.put("file", b"x")
            s3 = bucket.s3(env={"ACCESS_KEY": "WRONGKEY01234567", "SECRET_KEY": "hidden-value"})
            with pytest.raises(CredentialError) as caught:
                s3.listing(f"{bucket.uri}/file/")
        message = str(caught.value)
        assert "InvalidAccessKeyId" in message
        assert "ACCESS_KEY" in message
        assert "hidden-value" not in message
        assert "WRONGKEY" not in message

    def test_a_wrong_secret_is_explained(self) -> None:
        with fresh_bucket("rclone") as bucket:
            s3 = bucket.s3(env={"SECRET_KEY": "hidden-value"})
            with pytest.raises(CredentialError, match=r"SignatureDoesNotMatch.*SECRET_KEY"):
                s3.listing(f"{bucket.uri}/file/")

    def test_no_credentials(self, tmp_path: Path) -> None:
        env = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
        with pytest.raises(CredentialError, match="ACCESS_KEY and SECRET_KEY"):
            S3.from_environment(env).listing("s3://bucket/key")

    def test_an_unsigned_request(self) -> None:
        with fresh_bucket("moto") as bucket:
            bucket.client.put_object(Bucket=bucket.name, Key="public", Body=b"x", ACL="public-read")
            env = {"S3_ENDPOINT_URL": bucket.url, "AWS_NO_SIGN_REQUEST": "1", "AWS_REGION": "x"}
            with FaultProxy(bucket.url) as proxy:
                s3 = S3(Store({**env, "S3_ENDPOINT_URL": proxy.url}, IMPATIENT))
                assert s3.listing(f"{bucket.uri}/public").files[0].size == 1
