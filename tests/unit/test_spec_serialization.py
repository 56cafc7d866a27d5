"""Specs become plain data, or are refused with their exact place."""

from __future__ import annotations

import copy
import enum
import subprocess
import sys
from collections import OrderedDict
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_sdk.errors import ValidationError
from tao_sdk.spec_serialization import (
    SpecTypeError,
    normalize_config_format,
    normalize_data,
    normalize_specs,
)


class Colour(enum.Enum):
    RED = "red"
    NESTED = ("a", 1)


class Level(enum.IntEnum):
    HIGH = 3


class Shout(str):
    def __str__(self) -> str:
        return "something else"


class Count(int):
    def __int__(self) -> int:
        return -1


class Ratio(float):
    def __float__(self) -> float:
        return -1.0


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"/x"


def is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.25), 0.25),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.str_("text"), "text"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(5), 5),
        (np.array([Path("/x"), None], dtype=object), ["/x", None]),
        (Colour.RED, "red"),
        (Colour.NESTED, ["a", 1]),
        (Level.HIGH, 3),
        (PurePosixPath("/data/in"), "/data/in"),
        (Shout("quiet"), "quiet"),
        (Count(4), 4),
        (Ratio(0.5), 0.5),
        ((1, (2,)), [1, [2]]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"k": [None]}), {"k": [None]}),
        ({Colour.RED: 1, Shout("loud"): 2}, {"red": 1, "loud": 2}),
        (2**100, 2**100),
        ("🚀\n", "🚀\n"),
        (None, None),
    ],
)
def test_what_becomes_plain(value: object, plain: object) -> None:
    converted = normalize_data(value, root="specs")
    assert converted == plain
    assert is_plain(converted)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Decimal("1"), r"specs\['k'\]: decimal\.Decimal cannot be written"),
        ({1}, r"specs\['k'\]: builtins\.set"),
        (b"x", r"specs\['k'\]: builtins\.bytes"),
        (datetime.now(timezone.utc), r"specs\['k'\]: datetime\.datetime"),
        (object(), r"specs\['k'\]: builtins\.object"),
        (BytesPath(), r"specs\['k'\]: .*BytesPath is a path of bytes"),
        (np.longdouble(1), r"specs\['k'\]: numpy\.longdouble has no plain Python equivalent"),
        (np.datetime64("2024-01-01"), r"specs\['k'\]: datetime\.date"),
        ([0, {"x": 1j}], r"specs\['k'\]\[1\]\['x'\]: builtins\.complex"),
        ({1: 2}, r"specs\['k'\]: the key 1 is builtins\.int; keys must be text"),
        ({Level.HIGH: 2}, r"specs\['k'\]: the key 3 is builtins\.int"),
        ({None: 2}, r"specs\['k'\]: the key None"),
    ],
)
def test_types_that_are_refused(value: object, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}") as caught:
        normalize_specs({"k": value})
    assert isinstance(caught.value, SpecTypeError)
    assert isinstance(caught.value, ValidationError)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"specs\['k'\]: nan is not a finite number"),
        ([1.0, float("-inf")], r"specs\['k'\]\[1\]: -inf is not a finite number"),
        (np.array([np.inf]), r"specs\['k'\]\[0\]: inf is not a finite number"),
        ({Colour.RED: 1, "red": 2}, r"specs\['k'\]\['red'\]: two keys"),
        ("\ud800", r"specs\['k'\]: '\\ud800' is not valid Unicode"),
        (Path("/x\udcff"), r"specs\['k'\]: .* is not valid Unicode"),
        ({"\ud800": 1}, r"specs\['k'\]: .* is not valid Unicode"),
    ],
)
def test_values_that_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValidationError, match=f"^{message}") as caught:
        normalize_specs({"k": value})
    assert isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, TypeError)


def test_a_value_that_contains_itself() -> None:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    with pytest.raises(ValidationError, match=r"specs\['k'\]\[1\]\['again'\]: circular"):
        normalize_specs({"k": loop})
    array = np.empty(1, dtype=object)
    array[0] = array
    with pytest.raises(ValidationError, match="circular"):
        normalize_specs({"k": array})


def test_the_same_value_in_two_places_is_no_circle() -> None:
    shared = {"lr": 0.1}
    normalized = normalize_specs({"a": shared, "b": [shared, shared]})
    assert normalized == {"a": {"lr": 0.1}, "b": [{"lr": 0.1}, {"lr": 0.1}]}
    assert normalized["a"] is not normalized["b"][0]


def test_null_can_be_forbidden() -> None:
    assert normalize_specs({"a": None}) == {"a": None}
    with pytest.raises(TypeError, match=r"specs\['a'\]\[0\]: None .* TOML has no null"):
        normalize_specs({"a": [None]}, allow_none=False)
    with pytest.raises(TypeError, match=r"^inputs: None"):
        normalize_data(None, root="inputs", allow_none=False)


def test_the_top_level() -> None:
    assert normalize_specs(None) == {}
    with pytest.raises(TypeError, match=r"specs must be a dict, not builtins\.list"):
        normalize_specs([])
    with pytest.raises(TypeError, match=r"^upload_excludes\[0\]: builtins\.set"):
        normalize_data([set()], root="upload_excludes")


def test_the_format_is_checked_early() -> None:
    assert normalize_config_format("YAML") == "yaml"
    with pytest.raises(ValidationError, match="'yml' is unknown: use one of json, yaml, toml"):
        normalize_config_format("yml")
    with pytest.raises(TypeError, match="config_format must be one of json, yaml, toml"):
        normalize_config_format(None)


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: st.lists(children) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), children
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.text("abc"), trees))
def test_plain_data_comes_out_equal_fresh_and_untouched(specs: dict[str, Any]) -> None:
    before = copy.deepcopy(specs)
    normalized = normalize_specs(specs)
    assert normalized == before
    assert list(normalized) == list(before)
    assert normalized is not specs
    for value in normalized.values():
        if isinstance(value, (list, dict)):
            value.clear()
    assert specs == before


def test_numpy_is_neither_needed_nor_imported() -> None:
    program = (
        "import sys; from tao_sdk.spec_serialization import normalize_specs;"
        "assert normalize_specs({'a': [1]}) == {'a': [1]}; sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
