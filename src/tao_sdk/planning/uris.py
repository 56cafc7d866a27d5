"""What kind of thing a URI names: data to be staged, a path that is used in place, or neither.

`s3://`, `hf_model://`, `hf_dataset://` and `ngc://` are staged. `lustre://`, `slurm://`, `file://`
and absolute paths are already there, on a mount. Nothing else is understood.
"""

from __future__ import annotations

import posixpath
import re

from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.uris import IN_PLACE_SCHEMES, scheme_of

PRETRAINED_SCHEMES = ("hf_model", "hf_dataset", "ngc")
STAGED_SCHEMES = ("s3", *PRETRAINED_SCHEMES)

_OTHER_STORE = "copy the data to an S3 store, or mount it and give its absolute path"
_INSTEAD = {
    "gs": _OTHER_STORE,
    "az": _OTHER_STORE,
    "azure": _OTHER_STORE,
    "abfs": _OTHER_STORE,
    "abfss": _OTHER_STORE,
    "http": "download it first, then give its place in an S3 store or on a mount",
    "https": "download it first, then give its place in an S3 store or on a mount",
    "hf": "write hf_model://OWNER/NAME or hf_dataset://OWNER/NAME",
    "s3a": "write s3://BUCKET/KEY",
    "s3n": "write s3://BUCKET/KEY",
}
OTHER_STORE_SCHEMES = tuple(name for name, hint in _INSTEAD.items() if not name.startswith("http"))


def is_remote(value: object) -> bool:
    """Whether it must be fetched before a command can read it."""
    return scheme_of(value) in STAGED_SCHEMES


def unsupported(uri: str, where: str, instead: str = "") -> RunnerError:
    """The error for a URI that is of no use in that place."""
    scheme = scheme_of(uri)
    known = ", ".join(f"{name}://" for name in STAGED_SCHEMES + IN_PLACE_SCHEMES)
    instead = instead or _INSTEAD.get(scheme, f"use one of {known} or an absolute path")
    what = f"{scheme}://" if scheme else "a relative path"
    return RunnerError(f"{where}: {uri}: {what} is not supported here: {instead}")


def parse_s3(uri: str) -> tuple[str, str]:
    """Bucket and key. Doubled slashes, left by joining texts, count as one; a last one is kept."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    if scheme_of(uri) != "s3" or not bucket:
        raise RunnerError(f"{uri!r}: write s3://BUCKET/KEY")
    return bucket, re.sub("/+", "/", key).lstrip("/")


def mount_target(mount_path: str, uri: str) -> str:
    """Where `s3://bucket/key` lies on storage that mirrors the store: `<mount>/bucket/key`."""
    bucket, key = parse_s3(uri)
    if ".." in [bucket, *key.split("/")]:
        raise RunnerError(f"{uri}: '..' in a key cannot be mapped below {mount_path}")
    return posixpath.join(mount_path, bucket, key).rstrip("/")
