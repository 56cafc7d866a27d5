"""`boto3_transfer.py down|up FOLDER BUCKET PREFIX`: boto3 as its documentation says, 16 threads.

Small objects are one request each; large ones are for boto3's transfer manager.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3  # type: ignore[import-untyped]  # it has no types
from boto3.s3.transfer import TransferConfig  # type: ignore[import-untyped]  # it has no types
from botocore.config import Config  # type: ignore[import-untyped]  # it has no types

THREADS = 16
# The newest checksums of boto3 are AWS's own: not every store knows them.
CLIENT = boto3.client(
    "s3",
    config=Config(
        max_pool_connections=THREADS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
    ),
)
MANAGED = TransferConfig(max_concurrency=THREADS)


def main(direction: str, folder: Path, bucket: str, prefix: str) -> None:
    def get(item: tuple[str, int]) -> None:
        name, size = item
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if size > MANAGED.multipart_threshold:
            CLIENT.download_file(bucket, prefix + name, str(path), Config=MANAGED)
        else:
            path.write_bytes(CLIENT.get_object(Bucket=bucket, Key=prefix + name)["Body"].read())

    def put(item: tuple[str, int]) -> None:
        name, size = item
        if size > MANAGED.multipart_threshold:
            CLIENT.upload_file(str(folder / name), bucket, prefix + name, Config=MANAGED)
        else:
            data = (folder / name).read_bytes()
            CLIENT.put_object(Bucket=bucket, Key=prefix + name, Body=data)

    if direction == "down":
        _at_once(get, _objects(bucket, prefix))
    else:
        _at_once(put, _files(folder))


def _at_once(work: Callable[[tuple[str, int]], None], items: Iterable[tuple[str, int]]) -> None:
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, items))


def _objects(bucket: str, prefix: str) -> list[tuple[str, int]]:
    pages = CLIENT.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    items = [item for page in pages for item in page["Contents"]]
    return [(item["Key"][len(prefix) :], item["Size"]) for item in items]


def _files(folder: Path) -> list[tuple[str, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [(str(path.relative_to(folder)), path.stat().st_size) for path in files]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
