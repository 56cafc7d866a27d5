"""Where requests go, and which keys can be files."""

from __future__ import annotations

import pytest

from tao_sdk.runner.errors import RunnerError, TransferError
from tao_sdk.runner.s3.addresses import Addresses, Place, parse_uri
from tao_sdk.runner.s3.listing import Item, as_tree


@pytest.mark.parametrize(
    ("env", "bucket", "url"),
    [
        ({}, "data", "https://data.s3.eu-west-1.amazonaws.com/a%20b"),
        ({}, "dotted.name", "https://s3.eu-west-1.amazonaws.com/dotted.name/a%20b"),
        ({}, "UPPER", "https://s3.eu-west-1.amazonaws.com/UPPER/a%20b"),
        (
            {"AWS_S3_ADDRESSING_STYLE": "path"},
            "data",
            "https://s3.eu-west-1.amazonaws.com/data/a%20b",
        ),
        ({"S3_ENDPOINT_URL": "http://minio:9000"}, "data", "http://minio:9000/data/a%20b"),
        ({"S3_ENDPOINT_URL": "minio:9000/"}, "data", "https://minio:9000/data/a%20b"),
        ({"S3_ENDPOINT_URL": "https://host/s3"}, "data", "https://host/s3/data/a%20b"),
        (
            {"S3_ENDPOINT_URL": "https://cloud.example", "S3_ADDRESSING_STYLE": "virtual"},
            "data",
            "https://data.cloud.example/a%20b",
        ),
        (
            {"AWS_ENDPOINT_URL_S3": "http://first", "AWS_ENDPOINT_URL": "http://second"},
            "data",
            "http://first/data/a%20b",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://second", "S3_ENDPOINT_URL": "http://third"},
            "data",
            "http://second/data/a%20b",
        ),
    ],
)
def test_addresses(env: dict[str, str], bucket: str, url: str) -> None:
    address = Addresses(env).of(Place(bucket, "a b"), "eu-west-1")
    assert address.base + address.path == url
    assert address.host in url


def test_china_has_its_own_names() -> None:
    address = Addresses({}).of(Place("data", "x"), "cn-north-1")
    assert address.host == "data.s3.cn-north-1.amazonaws.com.cn"


@pytest.mark.parametrize(
    "env",
    [
        {"S3_ENDPOINT_URL": "ftp://host"},
        {"S3_ENDPOINT_URL": "http://"},
        {"AWS_S3_ADDRESSING_STYLE": "upside-down"},
    ],
)
def test_settings_that_cannot_be_right_are_named(env: dict[str, str]) -> None:
    with pytest.raises(RunnerError, match=next(iter(env))):
        Addresses(env)


def test_uris_are_taken_literally() -> None:
    assert parse_uri("s3://bucket/a%20b//c?d#e") == Place("bucket", "a%20b//c?d#e")
    assert parse_uri("S3://bucket") == Place("bucket", "")
    for wrong in ("s3://", "s3:///key", "bucket/key", "http://bucket/key", "s3://a b/key"):
        with pytest.raises(RunnerError, match=r"s3://bucket/key|name of a bucket"):
            parse_uri(wrong)


def tree(*keys: str, size: int = 1) -> tuple[list[str], list[str]]:
    files, folders = as_tree([Item(key, size, "") for key in keys], "p/", "s3://b/")
    return sorted(files), folders


class TestTree:
    def test_steps_that_mean_nothing_are_left_out(self) -> None:
        assert tree("p//a", "p/./b", "p/c//d") == (["a", "b", "c/d"], [])

    @pytest.mark.parametrize("key", ["p/../x", "p/a/../../x", "p/..", "p/a\0b"])
    def test_keys_that_lead_out_are_refused_by_name(self, key: str) -> None:
        """Lesson A12: nothing is written outside of the folder."""
        with pytest.raises(TransferError, match="leads out of the folder"):
            tree("p/good", key)

    def test_two_keys_for_one_file_are_refused(self) -> None:
        with pytest.raises(TransferError, match=r"s3://b/p//a and s3://b/p/a"):
            tree("p/a", "p//a")

    def test_a_file_that_has_files_below_is_refused(self) -> None:
        with pytest.raises(TransferError, match="s3://b/p/a is an object and has objects below it"):
            tree("p/a", "p/a/b/c")

    def test_an_empty_object_marks_its_folder(self) -> None:
        items = [Item("p/a", 0, ""), Item("p/a/b", 1, ""), Item("p/c/", 0, ""), Item("p/", 0, "")]
        files, folders = as_tree(items, "p/", "s3://b/")
        assert list(files) == ["a/b"]
        assert folders == ["c"]

    def test_content_under_the_name_of_a_folder_is_refused(self) -> None:
        with pytest.raises(TransferError, match="has content but the name of a folder"):
            tree("p/a/")
