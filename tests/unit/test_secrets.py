"""Secrets show themselves to nobody."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, dataclass

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


def test_redaction_takes_the_longest_value_first() -> None:
    longer = VALUE + "-longer"
    assert redact(longer, [Secret(VALUE), Secret(longer)]) == PLACEHOLDER
