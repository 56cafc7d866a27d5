"""What an answer other than success means: try again, or tell the user what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import CredentialError, NotFoundError, RunnerError, TransferError

_PASSING_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504, 509))
_PASSING_CODES = frozenset(
    (
        "SlowDown",
        "RequestTimeout",
        "InternalError",
        "ServiceUnavailable",
        "OperationAborted",
        "IncompleteBody",
    )
)
_KEYS = (
    "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or ACCESS_KEY and SECRET_KEY), and that "
    "they belong to this endpoint"
)
_S3_ADVICE = {
    "AccessDenied": "these credentials may not do this; check the policy of the bucket and user, "
    "and ACCESS_KEY and SECRET_KEY",
    "SignatureDoesNotMatch": "the secret is not the one of this key: check "
    "AWS_SECRET_ACCESS_KEY (or SECRET_KEY)",
    "InvalidAccessKeyId": _KEYS,
    "InvalidToken": "check AWS_SESSION_TOKEN, which belongs to one pair of keys",
    "ExpiredToken": "the temporary credentials have expired: renew AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "NoSuchBucket": "check the name of the bucket, S3_ENDPOINT_URL and the region "
    "(AWS_REGION or CLOUD_REGION)",
    "NoSuchKey": "check the name of the object",
    "PermanentRedirect": "set AWS_REGION to the region of the bucket",
    "AuthorizationHeaderMalformed": "set AWS_REGION to the region of the bucket",
}
_PHRASES = {401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}  # answers to HEAD say no more
_ADVICE_BY_SCHEME = {
    "s3": _KEYS,
    "hf_model": "check HF_TOKEN",
    "hf_dataset": "check HF_TOKEN",
    "ngc": "check NGC_KEY",
}


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def code(self) -> str:
        """S3's name for what is wrong; some of its errors have the status of a success."""
        return self.element("Code") if b"<Error>" in self.body[:1024] else ""

    @property
    def region(self) -> str:
        """Where S3 says that the bucket is."""
        return self.headers.get("x-amz-bucket-region", "") or self.element("Region")

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _PASSING_STATUSES or self.code in _PASSING_CODES

    @property
    def retry_after(self) -> float:
        """Seconds that the server asks to wait; 0 where it does not say."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() else 0.0

    def says(self) -> str:
        """What the answer says about itself, in one line."""
        said = self.element("Message") or self.headers.get("x-error-message", "")
        words = " ".join(part for part in (self.code, said) if part)
        words = words or _PHRASES.get(self.status, "")
        return " ".join(f"{self.status} {words}".split())[:300]

    def error(self, uri: str) -> RunnerError:
        """The exception for an answer that is no success."""
        kind: type[RunnerError] = TransferError
        if self.status in (401, 403) or self.code == "ExpiredToken":
            kind = CredentialError
        elif self.status in (404, 410):
            kind = NotFoundError
        advice = _S3_ADVICE.get(self.code, "")
        if not advice and kind is CredentialError:
            advice = _ADVICE_BY_SCHEME.get(uri.split(":", 1)[0], "check the credentials for it")
        if self.is_passing:
            advice = "it was asked again and again: try later"
        return kind(f"{uri}: {self.says()}" + (f"; {advice}" if advice else ""))

    def element(self, name: str) -> str:
        """The text of an element in a short XML document of S3's."""
        found = re.search(f"<{name}>([^<]*)</{name}>".encode(), self.body[:65536])
        text = found.group(1).decode("utf-8", "replace").strip() if found else ""
        if "&" in text:
            import html

            text = html.unescape(text)
        return text
