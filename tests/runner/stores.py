"""The bucket that tests of the whole command read from and deliver to."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from lab import s3

NAME = "bucket"


class Bucket:
    """`s3://bucket` on one of the lab's servers, empty at first unless told otherwise."""

    def __init__(self, kind: str, *, empty: bool = True) -> None:
        self.kind, self.url = kind, s3.server_url(kind)
        self._client = _client(kind)
        if empty:
            for key in self.names():
                self.delete(key)
            for upload in self._uploads():  # of jobs that an earlier test killed
                self._client.abort_multipart_upload(Bucket=NAME, **upload)

    @property
    def env(self) -> dict[str, str]:
        """How a job gets there."""
        return {
            "ACCESS_KEY": s3.ACCESS_KEY,
            "SECRET_KEY": s3.SECRET_KEY,
            "S3_ENDPOINT_URL": self.url,
            "CLOUD_REGION": "us-east-1",
        }

    @property
    def results(self) -> dict[str, str]:
        """The same for a job whose results go there."""
        return {**self.env, "S3_BUCKET_NAME": NAME}

    def put(self, files: Mapping[str, bytes]) -> None:
        for key, data in files.items():
            self._client.put_object(Bucket=NAME, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=NAME, Key=key)

    def read(self, key: str) -> bytes:
        body: bytes = self._client.get_object(Bucket=NAME, Key=key)["Body"].read()
        return body

    def names(self, prefix: str = "") -> list[str]:
        lists = self._client.get_paginator("list_objects_v2")
        pages = lists.paginate(Bucket=NAME, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def below(self, prefix: str) -> dict[str, bytes]:
        """Everything below a folder, but for the record of the job."""
        start = prefix.rstrip("/") + "/"
        return {
            key[len(start) :]: self.read(key)
            for key in self.names(start)
            if not key.endswith("/tao_result.json")
        }

    def unfinished_uploads(self) -> list[str]:
        return [upload["UploadId"] for upload in self._uploads()]

    def _uploads(self) -> list[dict[str, str]]:
        try:
            found = self._client.list_multipart_uploads(Bucket=NAME).get("Uploads", ())
        except self._client.exceptions.NoSuchUpload:  # what rclone says when there are none
            found = ()
        return [{name: upload[name] for name in ("Key", "UploadId")} for upload in found]


@functools.cache
def _client(kind: str) -> Any:
    """A third party's client; the bucket is made once for each server."""
    return s3.Bucket(kind, s3.server_url(kind), NAME).client
