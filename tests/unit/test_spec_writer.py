"""Spec files: what is read back is what was given."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tao_sdk.runner import spec_writer
from tao_sdk.spec_files import CONFIG_FORMATS, dump_spec

# The standard library reads TOML from Python 3.11 on.
READABLE_FORMATS = [f for f in CONFIG_FORMATS if f != "toml" or sys.version_info >= (3, 11)]

RUNNER = Path(spec_writer.__file__).parent
WRITERS = sorted(RUNNER.glob("*_writer.py"))

# Text that some reader, in some version of some format, takes for something else.
TRICKY = [
    "", " ", "  lead", "trail ", "\t", "\n", "a\nb\n", "\r\n", "a\x00b", "\x07\x1b[0m", "\x7f",
    "\x85", "\u2028", "\ufeff", "\xa0", "é", "日本語", "🚀 launch", "\U000e0001", "'",
    '"', "\\", '\\"', "1", "-1", "+1", "007", "0o7", "0x1F", "0b11", "1_000", "1.", ".5", "1e3",
    "1.5e-3", "1E5", "-.inf", ".inf", ".NaN", "nan", "inf", "12:30:00", "190:20:30", "2024-01-01",
    "2024-01-01T00:00:00Z", "2024-01-01 10:00:00", "true", "True", "FALSE", "yes", "No", "on",
    "OFF", "y", "N", "null", "NULL", "Null", "~", "=", "<<", "-", "--", "---", "--- x", "...",
    "... x", "- a", "? a", ": a", "a: b", "a:", "a #b", "#a", "a#b", "&a", "*a", "!a", "!!str a",
    "|", ">", "%YAML 1.1", "@a", "`a`", "{a}", "[a]", "{a: b}", "a, b", "a, [b", "${env:TOKEN}",
    "s3://bucket/path?x=1&y=2", "/data/in", "./x", "../x", "7.0.1-pyt", "10 apples", "a=b", "a.b",
]  # fmt: skip

texts = st.sampled_from(TRICKY) | st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\t \"'\\:#-?,[]{}&*!|>%@`=.0e"),
    max_size=12,
)
scalars = (
    st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)


def specs(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    nested = st.recursive(
        leaves,
        lambda children: (
            st.lists(children, max_size=4)
            | st.dictionaries(texts, children, max_size=4)
            | st.lists(st.dictionaries(texts, children, max_size=3), max_size=3)
        ),
        max_leaves=12,
    )
    return st.dictionaries(texts, nested, max_size=5)


def read(text: str, config_format: str) -> Any:
    if config_format == "json":
        return json.loads(text)
    if config_format == "yaml":
        return yaml.safe_load(text)
    tomllib = pytest.importorskip("tomllib", reason="the TOML reader came with Python 3.11")
    return tomllib.loads(text)


def exact(value: Any) -> Any:
    """A form that tells 1 from 1.0 from True, and one order of keys from another."""
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    if isinstance(value, list):
        return ("list", [exact(item) for item in value])
    return (type(value).__name__, repr(value))


def assert_round_trip(spec: dict[str, Any], config_format: str) -> None:
    text = dump_spec(spec, config_format)
    assert exact(read(text, config_format)) == exact(spec), text


class TestRoundTrip:
    @settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
    @given(specs(scalars))
    @example({text: [text, {text: text}] for text in TRICKY})
    def test_any_spec_in_every_format(self, spec: dict[str, Any]) -> None:
        """Lessons A16 and A17: nothing is corrupted, nothing is sorted."""
        for config_format in READABLE_FORMATS:
            assert_round_trip(spec, config_format)

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(specs(scalars | st.none()))
    def test_null_where_there_is_one(self, spec: dict[str, Any]) -> None:
        assert_round_trip(spec, "json")
        assert_round_trip(spec, "yaml")

    @pytest.mark.parametrize("config_format", CONFIG_FORMATS)
    @pytest.mark.parametrize(
        "spec",
        [
            {"a": [[{"b": 1}]]},
            {"a": [1, "x", {"k": 1}, [2.5, True]]},
            {"a": [{}, {"b": {}}, {"b": [{"c": []}]}]},
            {"a": {"b": 1}, "c": 2, "d": {"e": {"f": {}}}, "g": [{"h": {"i": 1}}, {"h": {}}]},
            {"a": {"b": {"c": {"d": 1}}}},
            {"a.b": {"c d": {'"': 1}}, "": {"": 2}},
            {"big": 2**200, "small": -(2**64), "floats": [5e-324, 1.7976931348623157e308, -0.0]},
            {"long": [f"class_{number:04d}" for number in range(300)]},
            {"k" * 5_000: {"x" * 5_000: [1, {"deep": 2}]}, "é" * 600: "v", "m" * 600: []},
            {},
        ],
    )
    def test_shapes_that_other_writers_break(
        self, spec: dict[str, Any], config_format: str
    ) -> None:
        """Lesson A16: lists of dicts in lists, mixed arrays, empty containers."""
        assert_round_trip(spec, config_format)

    @pytest.mark.parametrize("config_format", CONFIG_FORMATS)
    def test_a_section_before_a_plain_value_keeps_its_place(self, config_format: str) -> None:
        """Lesson A17: the keys stay in the user's order in every format."""
        spec = {"train": {"z": 1, "a": {"y": 2}, "b": 3}, "results_dir": "/r", "dataset": {"x": 4}}
        back = read(dump_spec(spec, config_format), config_format)
        assert list(back) == ["train", "results_dir", "dataset"]
        assert list(back["train"]) == ["z", "a", "b"]


SPEC = {
    "results_dir": "/results",
    "image": "7.0.1-pyt",
    "note": "two\nlines",
    "version": "1.10",
    "train": {
        "lr": 1e-05,
        "seed": None,
        "optim": {"name": "adam w", "betas": [0.9, 0.999]},
        "tags": [],
    },
    "sources": [{"path": "s3://b/x", "on": True}, {"path": "/y", "extra": {}}],
}


class TestReadability:
    def test_yaml_is_block_style_with_few_quotes(self) -> None:
        assert dump_spec(SPEC, "yaml") == (
            "results_dir: /results\n"
            "image: 7.0.1-pyt\n"
            'note: "two\\nlines"\n'
            'version: "1.10"\n'
            "train:\n"
            "  lr: 1.0e-05\n"
            "  seed: null\n"
            "  optim:\n"
            "    name: adam w\n"
            "    betas:\n"
            "      - 0.9\n"
            "      - 0.999\n"
            "  tags: []\n"
            "sources:\n"
            "  - path: s3://b/x\n"
            '    "on": true\n'
            "  - path: /y\n"
            "    extra: {}\n"
        )

    def test_toml_has_sections(self) -> None:
        train = {**SPEC["train"], "seed": 1}  # type: ignore[dict-item]  # nested data of any type
        assert dump_spec({**SPEC, "train": train, "eval": {"on": {"gpu": 0}}}, "toml") == (
            'results_dir = "/results"\n'
            'image = "7.0.1-pyt"\n'
            'note = "two\\nlines"\n'
            'version = "1.10"\n'
            "\n"
            "[train]\n"
            "lr = 1.0e-05\n"
            "seed = 1\n"
            'optim.name = "adam w"\n'
            "optim.betas = [0.9, 0.999]\n"
            "tags = []\n"
            "\n"
            "[[sources]]\n"
            'path = "s3://b/x"\n'
            "on = true\n"
            "\n"
            "[[sources]]\n"
            'path = "/y"\n'
            "\n"
            "[sources.extra]\n"
            "\n"
            "[eval.on]\n"
            "gpu = 0\n"
        )

    def test_long_lists_of_toml_are_broken_into_lines(self) -> None:
        names = [f"class_{number:02d}" for number in range(20)]
        lines = dump_spec({"names": names}, "toml").splitlines()
        assert lines[:2] == ["names = [", '  "class_00",']
        assert max(map(len, lines)) < 100

    def test_json_is_indented_and_keeps_letters(self) -> None:
        assert dump_spec({"b": "é", "a": [1]}, "json") == (
            '{\n  "b": "é",\n  "a": [\n    1\n  ]\n}\n'
        )

    def test_yaml_floats_are_floats_to_a_yaml_1_1_reader(self) -> None:
        spec = {"values": [1e-05, 1e22, 1.5e-07, 0.1, 100.0]}
        assert "1.0e-05" in dump_spec(spec, "yaml")
        assert yaml.safe_load(dump_spec(spec, "yaml")) == spec


class TestRefusals:
    @pytest.mark.parametrize("config_format", ["JSON", "Yaml", "tOmL"])
    def test_the_format_may_be_in_any_case(self, config_format: str) -> None:
        assert dump_spec({"a": 1}, config_format) == dump_spec({"a": 1}, config_format.lower())

    @pytest.mark.parametrize("config_format", ["yml", "xml", ""])
    def test_an_unknown_format_lists_the_known_ones(self, config_format: str) -> None:
        with pytest.raises(ValueError, match="json, yaml, toml"):
            dump_spec({}, config_format)

    def test_the_format_must_be_text(self) -> None:
        with pytest.raises(TypeError, match="config_format must be text"):
            dump_spec({}, None)  # type: ignore[arg-type]  # wrong on purpose

    @pytest.mark.parametrize(
        ("spec", "place"),
        [
            ({"a": None}, r"specs\['a'\]"),
            ({"a": [1, {"b": [None]}]}, r"specs\['a'\]\[1\]\['b'\]\[0\]"),
        ],
    )
    def test_toml_has_no_null(self, spec: dict[str, Any], place: str) -> None:
        """Lesson A16: None is refused with its place, never dropped or turned into text."""
        with pytest.raises(TypeError, match=f"^{place}: None .* TOML has no null"):
            dump_spec(spec, "toml")

    @pytest.mark.parametrize("config_format", CONFIG_FORMATS)
    @pytest.mark.parametrize(
        ("spec", "error", "message"),
        [
            ([], TypeError, "specs must be a dict, not list"),
            ({1: 2}, TypeError, "specs: the key 1 is not text"),
            ({"a": {"b": float("nan")}}, ValueError, r"specs\['a'\]\['b'\]: nan is not a finite"),
            ({"a": [(1, 2)]}, TypeError, r"specs\['a'\]\[0\]: tuple cannot be written"),
            ({"a": "\ud800"}, ValueError, r"specs\['a'\]: .* not valid Unicode"),
            ({"\ud800": 1}, ValueError, "specs: .* not valid Unicode"),
        ],
    )
    def test_what_would_not_read_back(
        self, spec: Any, error: type[Exception], message: str, config_format: str
    ) -> None:
        with pytest.raises(error, match=message):
            dump_spec(spec, config_format)


class TestTravelling:
    """The writers are copied into containers whose Python may be as old as 3.8."""

    @pytest.mark.parametrize("path", WRITERS, ids=lambda path: path.name)
    def test_only_the_standard_library_and_old_syntax(self, path: Path) -> None:
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            else:
                continue
            for module in modules:
                assert module.partition(".")[0] in sys.stdlib_module_names
