"""A spec against a schema."""

from __future__ import annotations

from typing import Any

import pytest

from tao_sdk.skills import MetadataError, validate_spec
from tao_sdk.skills.conditions import broken_condition, parse_condition


def complaints(value: Any, **node: Any) -> list[str]:
    schema = {"properties": {"a": {"properties": {"b": node}}}}
    return [str(problem) for problem in validate_spec({"a": {"b": value}}, schema)]


@pytest.mark.parametrize(
    ("value", "node", "complaint"),
    [
        (1.5, {"type": "int"}, "a.b: must be a whole number, not 1.5"),
        (True, {"type": "int"}, "a.b: must be a whole number, not True"),
        ("1e-5", {"type": "float"}, "a.b: must be a number, not '1e-5'"),
        (1, {"type": "bool"}, "a.b: must be true or false, not 1"),
        (3, {"type": "string"}, "a.b: must be text, not 3"),
        ("x", {"type": "list"}, "a.b: must be a list, not 'x'"),
        ([1], {"type": "collection"}, "a.b: must be a section, not [1]"),
        (0, {"type": "int", "minimum": 1}, "a.b: must be at least 1, not 0"),
        (9, {"type": "int", "maximum": 8}, "a.b: must be at most 8, not 9"),
        ("c", {"type": "categorical", "enum": ["a", "b"]}, "a.b: must be one of 'a', 'b', not 'c'"),
        (True, {"type": "categorical", "enum": [1, 2]}, "a.b: must be one of 1, 2, not True"),
        (2, {"type": "ordered_int", "enum": [1, 3]}, "a.b: must be one of 1, 3, not 2"),
        (["a", "z"], {"type": "subset_list", "enum": ["a"]}, "a.b[1]: must be one of 'a', not 'z'"),
        ([1], {"type": "list_2"}, "a.b: must have 2 items, not 1"),
        (
            [0.9, 1.5],
            {"type": "list_2", "minimum": [0.8, 0.9], "maximum": [0.95, 1]},
            "a.b[1]: must be at most 1, not 1.5",
        ),
        ("gpu", {"type": "string", "pattern": "^(cuda|cpu)$"}, "a.b: must look like ^(cuda|cpu)$"),
        (0.0, {"type": "float", "math_cond": "> 0.0"}, "a.b: must be greater than 0, not 0.0"),
        (12, {"type": "int", "math_cond": "/ 8"}, "a.b: must be a multiple of 8, not 12"),
        (12, {"type": "int", "math_cond": "^ 2"}, "a.b: must be a power of 2, not 12"),
        ([], {"anyOf": [{"type": "number"}]}, ""),
        ({}, {"anyOf": [{"type": "number"}]}, ""),
        ("x", {"anyOf": [{"type": "number"}, {"type": "bool"}]}, "a number or true or false"),
    ],
)
def test_what_is_forbidden(value: Any, node: dict[str, Any], complaint: str) -> None:
    found = complaints(value, **node)
    assert len(found) == bool(complaint)
    assert complaint in "".join(found)


@pytest.mark.parametrize(
    ("value", "node"),
    [
        (10**12, {"type": "int", "maximum": float("inf")}),
        (-(10**12), {"type": "int", "minimum": float("-inf")}),
        (1, {"type": "float"}),
        ("", {"type": "int"}),
        (None, {"type": "int"}),
        ("???", {"type": "int"}),
        ("${env:EPOCHS}", {"type": "int"}),
        (["a"], {"type": "optional_list", "enum": ["a"]}),
        (16, {"type": "int", "math_cond": "^ 2"}),
        (0, {"type": "int", "math_cond": "/ 8"}),
        ("x", {"anyOf": [{"type": "number"}, {"type": "string"}]}),
        ("x", {"type": "of_the_future"}),
        ("x", {}),
    ],
)
def test_what_is_allowed(value: Any, node: dict[str, Any]) -> None:
    assert complaints(value, **node) == []


def test_a_condition_on_another_value() -> None:
    schema = {
        "properties": {
            "low": {"type": "int"},
            "high": {"type": "int", "math_cond": "> depends_on", "depends_on": "low"},
        }
    }
    assert validate_spec({"low": 3, "high": 4}, schema) == []
    assert [str(p) for p in validate_spec({"low": 3, "high": 3}, schema)] == [
        "high: must be greater than 3, not 3"
    ]
    assert validate_spec({"low": "", "high": 3}, schema) == []


def test_required_keys_but_not_those_of_other_actions() -> None:
    schema = {
        "required": ["quantize", "train"],
        "properties": {"a": {"required": ["b"], "properties": {}}},
    }
    found = [str(problem) for problem in validate_spec({"a": {}, "train": {}}, schema, "train")]
    assert found == []
    found = [str(problem) for problem in validate_spec({"a": {"c": 1}}, schema, "train")]
    assert found == [
        "train: is required and not in the spec",
        "a.b: is required and not in the spec",
    ]


def test_lists_among_the_properties_are_passed_over() -> None:
    schema = {"properties": {"a": {"type": "int"}, "automl_disabled_parameters": ["a"]}}
    assert validate_spec({"a": 1, "automl_disabled_parameters": 3}, schema) == []


@pytest.mark.parametrize(
    "text",
    ["> 0.0", ">0", ">= 0", "!= 0", "> 0.0 <= 1.0", "> depends_on", "/ 8", "^ 2", "/ 2", "< 1e-3"],
)
def test_the_conditions_in_the_wild(text: str) -> None:
    assert parse_condition(text)


def test_conditions() -> None:
    assert broken_condition(0.5, "> 0.0 <= 1.0", []) == ""
    assert broken_condition(1.5, "> 0.0 <= 1.0", []) == "at most 1"
    assert broken_condition(0, "!= 0", []) == "other than 0"
    for power in [2**exponent for exponent in range(60)]:
        assert broken_condition(power, "^ 2", []) == ""
    for other in (0, -2, 3, 6, 1023, 2**40 + 2):
        assert broken_condition(other, "^ 2", []) == "a power of 2"
    with pytest.raises(MetadataError, match="'about 3' is not a condition"):
        parse_condition("about 3")


@pytest.mark.parametrize("text", ["/ 0", "> 0..1", "> 1.2.3", "/ 0.0"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(MetadataError, match="condition"):
        complaints(4, type="float", math_cond=text)


def test_large_numbers_are_judged_exactly() -> None:
    assert complaints(2**1030, type="int", math_cond="^ 2") == []
    assert complaints(2**1030 + 1, type="int", math_cond="/ 2") != []


def test_a_pattern_that_is_none_is_named() -> None:
    with pytest.raises(MetadataError, match=r"a\.b: the schema's pattern '\[' is none"):
        complaints("x", type="string", pattern="[")
