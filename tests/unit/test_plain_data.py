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
# Each level merges the one before nine times; the mappings that result are small.
MERGES = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{name}: &{name}\n  <<: [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
# Each merges the one before, and the last line the last of them.
CHAIN = (
    "m0: &m0 {x: 1}\n"
    + "".join(f"m{n}: &m{n} {{<<: *m{n - 1}}}\n" for n in range(1, 2000))
    + "<<: *m1999\n"
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
        (MERGES, "aliases"),
        (CHAIN, "nested"),
        ("a: &a\n  <<: *a\n", "nested"),
        ("a: " + ":".join(["1"] * 200_000), "digits"),
        ("a: " + ":".join(["1"] * 200_000) + ".5", "digits"),
        ("a: !!int '" + ":".join(["1"] * 200_000) + "'", "digits"),
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


def test_merges_and_long_text_are_read() -> None:
    base = "base: &base {lr: 1, n: 2}\n"
    assert parse_yaml(base + "train:\n  <<: *base\n  n: 3\n")["train"] == {"lr": 1, "n": 3}
    # A pattern of numbers that tries every split of the digits would not come to its end.
    digits = "1" * 200_000 + "x"
    assert parse_yaml(f"a: {digits}") == {"a": digits}
    assert parse_yaml("t: 1:30\nf: 1:30.5") == {"t": 90, "f": 90.5}


@pytest.mark.parametrize("depth", [150, 300_000])
def test_json_that_is_too_deep_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match="nested"):
        parse_json("[" * depth + "]" * depth)


def test_infinity_is_a_number() -> None:
    assert parse_json('{"maximum": Infinity}') == {"maximum": float("inf")}
