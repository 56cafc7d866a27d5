"""Signatures are those that botocore makes."""

from __future__ import annotations

import datetime
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_sdk.runner.s3.addresses import Addresses, Place
from tao_sdk.runner.s3.signing import (
    EMPTY_SHA256,
    UNSIGNED,
    Credentials,
    Signer,
    encoded_query,
)

NOW = 1_760_000_000.0
HEADER_VALUES = st.text(
    alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20
)
KEYS = st.one_of(
    st.text(min_size=1, max_size=40).filter(lambda key: key.isprintable()),
    st.lists(
        st.sampled_from(
            ["a", " ", "+", "%", "%2F", "//", "~", ".", "..", "é", "日本", "&", "=", "?", "#", "'"]
        ),
        min_size=1,
        max_size=8,
    ).map("".join),
)


def botocore_signature(
    credentials: Credentials, method: str, url: str, headers: dict[str, str], payload: str
) -> str:
    auth = pytest.importorskip("botocore.auth")
    awsrequest = pytest.importorskip("botocore.awsrequest")
    pair = pytest.importorskip("botocore.credentials").Credentials(
        credentials.access_key, credentials.secret_key, credentials.token or None
    )
    request = awsrequest.AWSRequest(method=method, url=url, headers=headers)
    signer = auth.S3SigV4Auth(pair, "s3", "eu-west-3")
    moment = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
    with (
        mock.patch("botocore.auth.get_current_datetime", return_value=moment.replace(tzinfo=None)),
        mock.patch.object(auth.S3SigV4Auth, "payload", return_value=payload),
    ):
        signer.add_auth(request)
    found: str = request.headers["Authorization"]
    return found


@settings(deadline=None, max_examples=300)
@given(
    method=st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE"]),
    key=KEYS,
    query=st.dictionaries(KEYS, KEYS | st.just(""), max_size=4),
    headers=st.dictionaries(
        st.sampled_from(
            ["If-Match", "Range", "Content-MD5", "x-amz-checksum-mode", "X-Amz-Meta-a"]
        ),
        HEADER_VALUES,
        max_size=3,
    ),
    # Other stores have longer ones than AWS: with "AWS4" before it, 60 fill a block of the HMAC.
    secret=st.sampled_from([40, 59, 60, 61, 128]).map(lambda length: ("wJal+/K7" * 16)[:length]),
    token=st.sampled_from(["", "FwoGZXIvYXdzEJr//token+/=="]),
    payload=st.sampled_from([UNSIGNED, EMPTY_SHA256]),
    virtual=st.booleans(),
)
def test_signatures_are_those_of_botocore(
    method: str,
    key: str,
    query: dict[str, str],
    headers: dict[str, str],
    secret: str,
    token: str,
    payload: str,
    virtual: bool,
) -> None:
    credentials = Credentials("AKIAEXAMPLE", secret, token)
    env = {"S3_ENDPOINT_URL": "https://store.example:9000"}
    if virtual:
        env["AWS_S3_ADDRESSING_STYLE"] = "virtual"
    address = Addresses(env).of(Place("bucket", key), "eu-west-3")
    text = encoded_query(query)
    url = f"{address.base}{address.path}" + (f"?{text}" if text else "")
    signed = Signer(credentials, "eu-west-3").headers(
        method, address.host, address.path, text, headers, payload, NOW
    )
    theirs = botocore_signature(credentials, method, url, headers, payload)
    assert signed["Authorization"] == theirs


def test_key_of_the_day_changes_with_the_day() -> None:
    signer = Signer(Credentials("key", "secret"), "us-east-1")

    def signature(now: float) -> str:
        return signer.headers("GET", "host", "/", "", {}, EMPTY_SHA256, now)["Authorization"]

    first = signature(NOW)
    assert signature(NOW + 86400) != first
    assert signature(NOW) == first


def test_credentials_do_not_show_in_text() -> None:
    credentials = Credentials("access", "hidden-secret", "hidden-token")
    assert "hidden" not in f"{credentials} {credentials!r}"
