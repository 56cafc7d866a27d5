"""YAML and JSON from elsewhere: what is not plain data is refused, in one line."""

from __future__ import annotations

import pytest

from tao_sdk.plain_data import parse_json, parse_yaml

BOMB = (
    "a: &a ["
    + "x," * 9
    + "]\n"
    + "".join(
        f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
)


def test_numbers_and_dates_are_read_as_the_containers_read_them() -> None:
    """OmegaConf: PyYAML alone takes 1e-5 for text, and makes an object of a date."""
    read = parse_yaml("{lr: 1e-5, big: -2E+3, day: 2026-01-31, word: 1e5x, quoted: '1e-5'}")
    assert read == {
        "lr": 1e-5,
        "big": -2000.0,
        "day": "2026-01-31",
        "word": "1e5x",
        "quoted": "1e-5",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "line 2"),
        ("!!python/object/apply:os.getcwd []", "python/object"),
        ("[" * 300_000, "nested"),
        ("- " * 300_000 + "a", "nested"),
        (BOMB, "aliases"),
        ("a: &a\n  b: *a\n", "nested"),
        ("yes: 1", "the key True is not text"),
        ("1: a", "the key 1 is not text"),
        ("a: !!binary aGk=", "bytes"),
        ("a: !!set {x}", "set"),
        ("a: " + "9" * 6000, "digits"),
    ],
    ids=lambda value: value[:20],
)
def test_other_yaml_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("depth", [150, 300_000])
def test_json_that_is_too_deep_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match="nested"):
        parse_json("[" * depth + "]" * depth)


def test_infinity_is_a_number() -> None:
    assert parse_json('{"maximum": Infinity}') == {"maximum": float("inf")}
