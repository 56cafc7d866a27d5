"""Specs, arguments and payloads of any form: a plan or a sentence, in the client and the runner."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from fuzzing import DEEP, NASTY, Findings, broken, counts, mutated

from tao_sdk import LocalSDK
from tao_sdk.cli import main
from tao_sdk.errors import ValidationError
from tao_sdk.plain_data import MAX_DEPTH, parse_json, parse_yaml
from tao_sdk.preflight.json_records import examine_text
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.selective import parse_references
from tao_sdk.script_runner import build_entrypoint
from tao_sdk.spec_files import dump_spec
from tao_sdk.spec_serialization import normalize_specs

pytestmark = pytest.mark.filterwarnings("ignore:not declared as inputs", "ignore:the command does")

GOOD: dict[str, Any] = {
    "specs": {
        "train": {"data": ["s3://bucket/a.tgz", {"root": "s3://bucket/b/"}], "lr": 0.1, "n": 3},
        "model": {"weights": "hf_model://org/net", "resume": "${env:START}", "empty": {}},
        "results_dir": "",
    },
    "inputs": {"train.data[*].root": {"type": "folder"}, "model.weights": {"optional": True}},
    "outputs": {"results_dir": {"type": "folder"}},
    "upload_excludes": ["inputs/", "!*.pth", "[a-z]*"],
    "config_format": "yaml",
}
ARGS: dict[str, Any] = {
    "args": {"data": "s3://bucket/a.tgz", "lr": 0.1, "names": ["a", "b"], "out": "/x"},
    "inputs": {"data": {"type": "file"}},
    "outputs": {"out": {"type": "folder"}},
    "flags": ["verbose"],
}


def nested(levels: int, form: type) -> Any:
    value: Any = "s3://bucket/key"
    for _ in range(levels):
        value = [value] if form is list else {"a": value}
    return value


@pytest.mark.parametrize("config_format", ["json", "yaml", "toml"])
@pytest.mark.parametrize("form", [dict, list])
def test_depth_is_bounded_and_what_is_within_is_written(form: type, config_format: str) -> None:
    def plan(levels: int) -> Any:
        specs = {"a": nested(levels, form)}
        return build_entrypoint(
            command="run {config_path}", specs=specs, config_format=config_format
        )

    assert plan(MAX_DEPTH - 1)
    for levels in (MAX_DEPTH, 500, 100_000):
        with pytest.raises(ValidationError, match=f"nested more than {MAX_DEPTH} levels deep"):
            plan(levels)


def test_each_way_to_give_a_spec_is_bounded(tmp_path: Path) -> None:
    sdk = LocalSDK(state_file=tmp_path / "s.json", work_dir=tmp_path / "root")
    deep = {"a": nested(500, dict)}
    with pytest.raises(ValidationError, match="levels deep"):
        sdk.plan(command="true", specs=deep, gpu_count=0)
    with pytest.raises(ValidationError, match="levels deep"):
        build_entrypoint(command="run", args={"a": nested(500, list)})
    with pytest.raises(ValidationError, match="levels deep"):
        build_entrypoint(command="run", inputs={"/x": nested(500, dict)})
    key = ".".join("a" * 500)
    with pytest.raises(ValidationError, match="levels deep into a spec"):
        build_entrypoint(command="run {config_path}", specs={}, outputs={key: {"type": "folder"}})


@pytest.mark.parametrize(
    "text",
    [DEEP, '{"a":' * 500, "[" * 500 + "]" * 500, "- " * 5000 + "x"],
    ids=["endless", "mappings", "lists", "dashes"],
)
def test_a_deep_text_is_refused_by_every_reader(text: str, tmp_path: Path) -> None:
    for read in (parse_json, parse_yaml):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            read(text)
    examine_text(text.encode(), [], 5)
    for name in ("a.json", "a.jsonl", "a.csv"):
        (tmp_path / name).write_text(text)
        with pytest.raises(RunnerError, match=name):
            parse_references(str(tmp_path / name), "", ["a.b"])


def test_a_null_that_toml_cannot_hold_is_an_error_of_ours() -> None:
    with pytest.raises(ValidationError, match=r"specs\['a'\]: None cannot be written"):
        build_entrypoint(command="run {config_path}", specs={"a": None})


def test_a_long_field_of_a_table_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name\n" + "x" * 200_000)
    with pytest.raises(RunnerError, match="is not valid CSV"):
        parse_references(str(tmp_path / "a.csv"), "", ["name"])


def test_a_deep_option_is_no_mistake_of_the_sdk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--state", str(tmp_path / "s.json"), "launch", "--yes", "--set", f"a={DEEP}"]
    assert main(words) != 0
    assert "mistake in the SDK" not in capfd.readouterr().err


@counts(1_000, 50_000)
def test_no_spec_raises(count: int) -> None:
    chance, found = random.Random(6), Findings("payloads")
    for _ in range(count):
        asked = mutated(chance.choice([GOOD, ARGS]), chance)
        for _ in range(chance.randrange(3)):
            asked = mutated(asked, chance)
        if not isinstance(asked, dict) or not set(asked) <= {*GOOD, *ARGS}:
            continue
        command = chance.choice(["run {config_path}", "run {data} {out}", "", None, "\x00"])

        def act(asked: Any = asked, command: Any = command) -> None:
            build_entrypoint(command=command, **asked)

        found.attempt(asked, act)
    found.check()


@counts(1_000, 50_000)
def test_no_text_of_a_spec_raises(count: int) -> None:
    """What is accepted is written, and read back as it was."""
    chance, found = random.Random(8), Findings("texts of specs")
    texts = [json.dumps(GOOD), dump_spec(GOOD["specs"], "yaml"), "a: &x [*x]\n", "? {a: 1}\n: 2\n"]
    for _ in range(count):
        text = chance.choice(texts)
        for _ in range(chance.randrange(1, 4)):
            text = broken(text, chance)

        def act(text: str = text) -> None:
            for read in (parse_json, parse_yaml):
                try:
                    content = read(text)
                except ValueError:
                    continue
                specs = normalize_specs({"a": content})
                assert parse_yaml(dump_spec(specs, "yaml")) == specs

        found.attempt(text, act)
    found.check()


def test_no_value_of_a_keyword_raises() -> None:
    found = Findings("keywords")
    for good in (GOOD, ARGS):
        for name, value in itertools.product(good, NASTY):
            asked = {**good, name: value}
            found.attempt(asked, lambda asked=asked: build_entrypoint(command="run", **asked))
    found.check()
