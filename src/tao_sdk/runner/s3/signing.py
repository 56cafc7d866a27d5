"""AWS Signature Version 4 in the `Authorization` header, as S3 wants it."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

EMPTY_SHA256 = sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"


class Credentials(NamedTuple):
    """A pair of keys, and what belongs to it when they are temporary."""

    access_key: str
    secret_key: str
    token: str = ""
    expires: float = 0.0
    """Seconds since 1970; 0 means never."""

    def __repr__(self) -> str:
        return "Credentials(...)"


def encoded_path(key: str) -> str:
    """A key as a path: every byte that is not unreserved is escaped, slashes stay."""
    return "/" + quote(key, safe="/~")


def encoded_query(query: Mapping[str, str]) -> str:
    """The query in the one order and spelling that is signed."""
    pairs = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


class Signer:
    """Signs for one service in one region. The key of the day is derived once."""

    def __init__(self, credentials: Credentials, region: str, service: str = "s3") -> None:
        self.credentials, self._region, self._service = credentials, region, service
        self._day, self._key, self._scope = "", b"", ""

    def headers(
        self,
        method: str,
        host: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        payload: str,
        now: float | None = None,
    ) -> dict[str, str]:
        """The headers to send: those given, which are all signed, and the signature's own.

        `path` and `query` are encoded; `payload` is the SHA-256 of the body, or `UNSIGNED`.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if now is None else now))
        signed = {**headers, "x-amz-content-sha256": payload, "x-amz-date": stamp}
        if self.credentials.token:
            signed["x-amz-security-token"] = self.credentials.token
        lines = {name.lower(): " ".join(value.split()) for name, value in signed.items()}
        lines["host"] = host
        names = sorted(lines)
        listed = ";".join(names)
        canonical = "\n".join(
            [method, path, query, *[f"{name}:{lines[name]}" for name in names], "", listed, payload]
        )
        key, scope = self._key_of(stamp[:8])
        digest = sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
        signature = _hmac(key, text).hex()
        signed["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.credentials.access_key}/{scope}, "
            f"SignedHeaders={listed}, Signature={signature}"
        )
        return signed

    def _key_of(self, day: str) -> tuple[bytes, str]:
        if day != self._day:
            key = ("AWS4" + self.credentials.secret_key).encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = _hmac(key, part)
            self._scope = f"{day}/{self._region}/{self._service}/aws4_request"
            self._key = key
            self._day = day  # last: other threads look at it first
        return self._key, self._scope


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
