"""Paths into nested specs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tao_sdk.planning.spec_paths import (
    check_places,
    declarations,
    declared_places,
    expand,
    folder_name,
    get_value,
    parse,
    refuse_flat_keys,
    texts,
)
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.place_names import EVERY, render
from tao_sdk.runner.places import remove, set_value, value_at

SPEC: dict[str, Any] = {
    "dataset": {
        "sources": [{"dir": "a"}, {"dir": "b", "extra": 1}, {}],
        "matrix": [[1, 2], [3]],
        "my-list": ["x"],
    },
    "empty": None,
    "number": 3,
}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("a[0].b", ("a", 0, "b")),
        ("a[0][1]", ("a", 0, 1)),
        ("a[*].b", ("a", EVERY, "b")),
        ("my-list[0]", ("my-list", 0)),
        ("a b.c/d", ("a b", "c/d")),
        ("a.0", ("a", "0")),
        ('a["x.y"].z', ("a", "x.y", "z")),
        ('["x.y"][0]', ("x.y", 0)),
        (r'a["q\"]"]', ("a", 'q"]')),
    ],
)
def test_parse(text: str, path: tuple[str | int, ...]) -> None:
    """Lesson A18: several indices and hyphens are no problem."""
    assert parse(text) == path
    assert render(path) == text


@pytest.mark.parametrize(
    "text", ["", ".a", "a.", "a..b", "[0].a", "a[", "a[]", "a[-1]", "a[x]", "a]b", "a[0]b", 'a["x]']
)
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(RunnerError, match="is not a path into a spec"):
        parse(text)


parts = st.one_of(st.text(min_size=1), st.integers(0, 10**6), st.just(EVERY))


@given(st.text(min_size=1), st.lists(parts))
@example("\n", ["a\nb", '"\n', ".."])
def test_round_trip(first: str, rest: list[str | int]) -> None:
    path = (first, *rest)
    assert parse(render(path)) == path


@given(st.lists(st.one_of(st.text(), st.integers(0, 99)), min_size=1))
def test_folder_name_is_one_harmless_name(path: list[str | int]) -> None:
    name = folder_name(tuple(path))
    assert "/" not in name
    assert "\0" not in name
    assert name not in (".", "..")
    assert name == folder_name((name,))


def test_folder_names() -> None:
    assert folder_name(parse("dataset.sources[0].image-dir")) == "dataset_sources_0_image-dir"


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("dataset.sources[1].dir", ["dataset.sources[1].dir"]),
        ("dataset.sources[*].dir", ["dataset.sources[0].dir", "dataset.sources[1].dir"]),
        ("dataset.matrix[*][0]", ["dataset.matrix[0][0]", "dataset.matrix[1][0]"]),
        ("dataset.matrix[0][1]", ["dataset.matrix[0][1]"]),
        ("dataset.matrix[1][1]", []),
        ("dataset.my-list[0]", ["dataset.my-list[0]"]),
        ("dataset.sources[9].dir", []),
        ("dataset.sources.dir", []),
        ("empty.x", []),
        ("empty", ["empty"]),
        ("number.x[0]", []),
        ("nothing", []),
    ],
)
def test_expand(path: str, places: list[str]) -> None:
    assert [render(place) for place in expand(SPEC, parse(path))] == places


def test_get() -> None:
    assert get_value(SPEC, parse("dataset.matrix[1][0]")) == 3
    assert value_at(SPEC, parse("dataset.matrix[1][0]")) == 3
    assert get_value(SPEC, parse("dataset.matrix[1][9]")) is None
    assert get_value(SPEC, parse("empty.x")) is None


def test_set_makes_sections() -> None:
    spec: dict[str, Any] = {"a": [{}]}
    check_places(spec, [parse("train.optim.lr"), parse("a[0].b.c")])
    assert spec == {"a": [{}]}
    set_value(spec, parse("train.optim.lr"), 1)
    set_value(spec, parse("a[0].b.c"), 2)
    assert spec == {"a": [{"b": {"c": 2}}], "train": {"optim": {"lr": 1}}}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("dataset.sources[3].dir", r"dataset.sources has 3 items, so \[3\] is not there"),
        ("dataset.matrix[1][1]", r"dataset.matrix\[1\] has 1 items"),
        ("empty.x", "empty should be a mapping but is null"),
        ("empty[0]", "empty should be a list but is null"),
        ("number.x", "number should be a mapping but is int 3"),
        ("dataset.sources.dir", "dataset.sources should be a mapping but is list"),
        ("nothing[0].x", "the list nothing is not in the spec"),
    ],
)
def test_set_where_nothing_can_be(path: str, message: str) -> None:
    """Lesson A18: lists are not padded, and a parent that is null is named."""
    spec = copy.deepcopy(SPEC)
    with pytest.raises(RunnerError, match=message) as caught:
        check_places(spec, [parse(path)])
    assert str(caught.value).startswith(f"{path}: ")
    assert spec == SPEC


def test_what_was_set_is_a_text() -> None:
    """Two declared outputs, one of which lies within the other."""
    with pytest.raises(RunnerError, match=r"a\.b: a should be a mapping but is str"):
        check_places({}, [("a",), ("a", "b")])


def test_remove() -> None:
    spec = copy.deepcopy(SPEC)
    remove(spec, parse("dataset.sources[1].extra"))
    remove(spec, parse("dataset.sources[0]"))
    assert spec["dataset"]["sources"] == [{"dir": "b"}, {}]


json_like = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(min_size=1), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.text(min_size=1), json_like, max_size=4))
def test_every_text_is_found_at_its_path(spec: dict[str, Any]) -> None:
    changed = copy.deepcopy(spec)
    found = list(texts(spec))
    for place, text in found:
        assert get_value(spec, parse(render(place))) == text
        set_value(changed, place, 0)
    assert list(texts(changed)) == []


def test_declarations() -> None:
    """Lesson A19: a declaration without options is one."""
    assert declarations({"a": None, "b": {"type": "file"}}, "inputs") == [
        ("a", {}),
        ("b", {"type": "file"}),
    ]
    assert declarations(["a"], "inputs") == [("a", {})]
    assert declarations(None, "inputs") == []
    for wrong in ("a", 3, {1: {}}, {"a": "file"}, [2]):
        with pytest.raises(RunnerError, match="inputs"):
            declarations(wrong, "inputs")


def test_declared_places() -> None:
    assert declared_places("config", SPEC, "dataset.sources[*].out", missing=True) == [
        ("dataset", "sources", 0, "out"),
        ("dataset", "sources", 1, "out"),
        ("dataset", "sources", 2, "out"),
    ]
    assert declared_places("config", SPEC, "new.key", missing=True) == [("new", "key")]
    assert declared_places("config", SPEC, "new.key") == []
    assert declared_places("args", {"results_dir": ""}, "results-dir") == [("results_dir",)]
    assert declared_places("args", {"a.b": ""}, "a.b") == [("a.b",)]
    assert declared_places("args", {}, "results-dir", missing=True) == [("results-dir",)]


@pytest.mark.seed("000.15")
@pytest.mark.parametrize(
    ("key", "nested"),
    [
        ("section.subsection.key", '{"section": {"subsection": {"key": ...}}}'),
        ("dataset.sources[0].dir", '{"dataset": {"sources": [{"dir": ...}]}}'),
        ("dataset.sources[2].dir", '{"dataset": {"sources": [..., {"dir": ...}]}}'),
        ("my-section.lr", '{"my-section": {"lr": ...}}'),
    ],
)
def test_flat_keys_are_refused_with_the_nested_form(key: str, nested: str) -> None:
    with pytest.raises(RunnerError) as caught:
        refuse_flat_keys({"ok": 1, key: "the-value", "train.lr": 1})
    message = str(caught.value)
    assert repr(key) in message
    assert "'train.lr'" in message
    assert message.endswith(f"write {nested}")
    assert "the-value" not in message


def test_keys_with_dots_that_are_no_paths() -> None:
    refuse_flat_keys({"0.5": 1, "nested": {"a.b": 1}, "v1.": 2, "a sentence. another": 3})
