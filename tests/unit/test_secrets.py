"""Secrets show themselves to nobody."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import re
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from urllib.parse import quote, urlencode

import pytest

from tao_sdk.secrets import PLACEHOLDER, Secret, find_exposed, redact, seal

VALUE = "s3cr3t-canary-value"
PRESIGNED = "https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=abcdef0123&x=1"


def test_it_cannot_be_printed() -> None:
    secret = Secret(VALUE)
    texts = [repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{[secret]}", "%s" % secret]  # noqa: UP031 - every way to print
    assert not any(VALUE in text for text in texts)
    assert secret.reveal() == VALUE


@pytest.mark.parametrize("store", [pickle.dumps, copy.deepcopy, copy.copy])
def test_it_cannot_be_stored(store) -> None:  # type: ignore[no-untyped-def]  # short, and only here
    with pytest.raises(TypeError, match="Secret"):
        store(Secret(VALUE))
    with pytest.raises(TypeError):
        json.dumps({"x": Secret(VALUE)})


def test_a_dataclass_that_holds_one_cannot_be_turned_into_data() -> None:
    @dataclass
    class Holder:
        secret: Secret

    with pytest.raises(TypeError):
        asdict(Holder(Secret(VALUE)))


def test_equality_and_truth() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")
    assert len({Secret("a"), Secret("a")}) == 1


def test_exposure_names_the_variable_never_the_value() -> None:
    known = seal({"SHORT": "1", "TOKEN": VALUE})
    assert find_exposed(f"curl -H {VALUE}", known) == "TOKEN"
    assert find_exposed("epoch 1 of 10", known) is None
    assert find_exposed(f"wget '{PRESIGNED}'", {}) == "a presigned URL"
    assert find_exposed("https://host/path?page=2", {}) is None


def test_redaction() -> None:
    text = redact(f"a {VALUE} b {VALUE}-and-more {PRESIGNED} git://u:pw@h/x", [Secret(VALUE)])
    assert text == (
        f"a {PLACEHOLDER} b {PLACEHOLDER}-and-more {PLACEHOLDER} git://u:{PLACEHOLDER}@h/x"
    )


@pytest.mark.parametrize(
    "address", ["redis://u:$tr0ngpass@h", "postgres://u:pa/ss@h", "ftp://u:p@ssword@h"]
)
def test_any_password_in_an_address_is_hidden(address: str) -> None:
    assert redact(address) == f"{address.partition(':')[0]}://u:{PLACEHOLDER}@h"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://ghp_0123@h/x", f"https://{PLACEHOLDER}@h/x"),
        ("git+https://ghp_0123@h/x@v1", f"git+https://{PLACEHOLDER}@h/x@v1"),
        ("http://proxy/https://u:p@h", f"http://proxy/https://u:{PLACEHOLDER}@h"),
        ("https://h/x@v1", "https://h/x@v1"),
        ("ssh://user@h/x", "ssh://user@h/x"),
    ],
)
def test_a_token_in_an_address_is_hidden(address: str, shown: str) -> None:
    assert redact(address) == shown


KEY = "-----BEGIN KEY-----\nMIIEvQ/+\"IBADANä\nBgkqhkiG9w0'x=/A\n-----END KEY-----\n"


@pytest.mark.parametrize("value", [KEY, "pa/ss+wo?rd&'1'", 'say "no" \\ twice', "\udcffundecoded"])
@pytest.mark.parametrize(
    "form",
    [
        repr,
        lambda value: repr({"TOKEN": value}),
        json.dumps,
        lambda value: json.dumps({"TOKEN": value}, indent=1, ensure_ascii=False),
        lambda value: json.dumps(json.dumps([value])),
        lambda value: textwrap.indent(value, "    | "),
        lambda value: value.replace("\n", "\r\n"),
        lambda value: quote(value, errors="surrogatepass"),
        lambda value: quote(value, safe="", errors="surrogatepass"),
        lambda value: re.sub(
            "%..", lambda code: code[0].lower(), quote(value, errors="surrogatepass")
        ),
        lambda value: urlencode({"token": value}, errors="surrogatepass"),
        *(
            lambda value, name=name, encode=encode: encode(
                f"{name}:{value}:x".encode(errors="surrogatepass")
            ).decode()
            for name in ("", "u", "us", "user")
            for encode in (base64.b64encode, base64.urlsafe_b64encode)
        ),
    ],
)
def test_a_value_is_hidden_in_every_form(value: str, form: Callable[[str], str]) -> None:
    printed = f"before {form(value)} after"
    hidden = redact(printed, [Secret(value)])
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    assert PLACEHOLDER in hidden
    left = re.sub(r"[^\w]+", "", hidden.replace(PLACEHOLDER, ""))
    assert len(left) < 40, hidden


@pytest.mark.parametrize(
    "piece",
    ["https://", "a://b:", "x://${", "a", "b:", "https://a:", "https://x?sig=&", "://u:@", "a+"],
)
def test_every_text_is_read_once(piece: str) -> None:
    """4 MB: reading them again from each address would take an hour."""
    text = f"https://{piece * (4_000_000 // len(piece))}"
    redact(text, [Secret(VALUE)])
    find_exposed(text, {})


def test_redaction_takes_the_longest_value_first() -> None:
    longer = VALUE + "-longer"
    assert redact(longer, [Secret(VALUE), Secret(longer)]) == PLACEHOLDER
