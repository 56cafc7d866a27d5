"""Secrets are found in a text by what was kept of them, and only with the key."""

from __future__ import annotations

import json

import pytest

from tao_sdk.platforms.common.fingerprints import Fingerprints
from tao_sdk.secrets import Secret, redact

KEY = Secret("token-of-the-workspace")
VALUES = ["hunter22", "a-key-of-some-length-0123456789", "pässwörd-ü", "short"]


@pytest.fixture
def fingerprints() -> Fingerprints:
    return Fingerprints(KEY, "job-1")


@pytest.mark.parametrize("value", VALUES[:3])
def test_values_are_found_wherever_they_are(fingerprints: Fingerprints, value: str) -> None:
    made = fingerprints.make([Secret(one) for one in VALUES])
    text = f"first line\nit is {value}{value}, the end"
    found = fingerprints.find(made, text)
    assert found is not None
    assert Secret(value) in found
    assert redact(text, found) == "first line\nit is [secret][secret], the end"


@pytest.mark.parametrize("text", ["", "nothing of it", VALUES[1][:-1], f"-{VALUES[1][1:]}"])
def test_nothing_else_is(fingerprints: Fingerprints, text: str) -> None:
    assert fingerprints.find(fingerprints.make([Secret(one) for one in VALUES]), text) == []


@pytest.mark.parametrize(
    "text", ["pa%20ss%2Fword-1", '{"key": "two\\nlines-of-it"}', "lines-of-it"]
)
def test_other_forms_are_found(fingerprints: Fingerprints, text: str) -> None:
    made = fingerprints.make([Secret("pa ss/word-1"), Secret("two\nlines-of-it")])
    found = fingerprints.find(made, text)
    assert found
    assert "[secret]" in redact(text, found)


def test_a_short_value_is_not_hidden(fingerprints: Fingerprints) -> None:
    assert json.loads(fingerprints.make([Secret("short")]))["values"] == []


def test_what_is_kept_holds_no_value(fingerprints: Fingerprints) -> None:
    made = fingerprints.make([Secret(one) for one in VALUES])
    assert not [value for value in (*VALUES, KEY.reveal()) if value in made]


@pytest.mark.parametrize(("key", "job"), [("another", "job-1"), (KEY.reveal(), "job-2")])
def test_with_another_key_it_says_so(fingerprints: Fingerprints, key: str, job: str) -> None:
    made = fingerprints.make([Secret(VALUES[1])])
    assert Fingerprints(Secret(key), job).find(made, VALUES[1]) is None


def test_a_form_of_a_value_that_shares_its_beginning(fingerprints: Fingerprints) -> None:
    longer = f"{VALUES[1]}-and-more"
    made = fingerprints.make([Secret(VALUES[1]), Secret(longer)])
    found = fingerprints.find(made, longer)
    assert found is not None
    assert set(found) == {Secret(VALUES[1]), Secret(longer)}
    assert redact(longer, found) == "[secret]"
