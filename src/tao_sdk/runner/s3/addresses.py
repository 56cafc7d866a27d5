"""Where buckets are: `s3://` URIs, endpoints, path style and virtual hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ..errors import RunnerError
from ..http.routes import origin_of
from .signing import encoded_path

_DNS_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_STYLES = ("auto", "path", "virtual")


class Place(NamedTuple):
    """A bucket, and a key or prefix in it."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def parse_uri(uri: str) -> Place:
    """`s3://bucket/key`, taken literally: nothing in a key is decoded."""
    scheme, mark, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if not mark or scheme.lower() != "s3" or not bucket:
        raise RunnerError(f"{uri!r} is not an object-store address: write s3://bucket/key")
    if re.search(r"[^A-Za-z0-9._-]", bucket):
        raise RunnerError(f"{uri!r}: {bucket!r} is not the name of a bucket")
    return Place(bucket, key)


class Address(NamedTuple):
    """Where a request goes."""

    base: str
    """`https://host`"""
    host: str
    path: str


class Addresses:
    """Turns buckets and keys into addresses, as the environment says."""

    def __init__(self, env: Mapping[str, str]) -> None:
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL")
        self._source = next((name for name in names if env.get(name, "").strip()), "")
        endpoint = env[self._source].strip() if self._source else ""
        if endpoint and "://" not in endpoint:
            endpoint = "https://" + endpoint
        try:
            self._endpoint = urlsplit(endpoint) if endpoint and origin_of(endpoint) else None
        except RunnerError as error:
            raise RunnerError(f"{self._source}={error}") from None
        style = env.get("AWS_S3_ADDRESSING_STYLE") or env.get("S3_ADDRESSING_STYLE") or "auto"
        if style not in _STYLES:
            raise RunnerError(
                f"AWS_S3_ADDRESSING_STYLE={style!r}: give one of {', '.join(_STYLES)}"
            )
        self._style = style

    @property
    def is_encrypted(self) -> bool:
        """Whether requests go over TLS."""
        return self._endpoint is None or self._endpoint.scheme == "https"

    def of(self, place: Place, region: str) -> Address:
        """Where to ask for an object; for a bucket when the key is empty."""
        base = ""
        if self._endpoint:
            scheme, host = self._endpoint.scheme, self._endpoint.netloc.rpartition("@")[2]
            base = self._endpoint.path.rstrip("/")
        else:
            scheme, host = "https", f"s3.{region}.amazonaws.com"
            if region.startswith("cn-"):
                host += ".cn"
        if self._is_virtual(place.bucket):
            host, path = f"{place.bucket}.{host}", encoded_path(place.key)
        else:
            path = f"/{place.bucket}{encoded_path(place.key)}"
        return Address(f"{scheme}://{host}", host, base + path)

    def _is_virtual(self, bucket: str) -> bool:
        if self._style != "auto":
            return self._style == "virtual"
        return self._endpoint is None and _DNS_NAME.fullmatch(bucket) is not None
