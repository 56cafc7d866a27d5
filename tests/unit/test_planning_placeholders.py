"""The place of the spec's path in commands, variables in values."""

from __future__ import annotations

import pytest

from tao_sdk.planning.placeholders import env_names, mark_config_path
from tao_sdk.runner.destinations import SPEC
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.variables import resolve_env


class TestConfigPath:
    @pytest.mark.seed("000.10")
    @pytest.mark.parametrize(
        "rest",
        [
            "",
            " ${HOME} ${config_path}",
            " | awk '{print $1}'",
            """ && python -c 'print(f"{1 + 1}", {"a": {}})'""",
            " {other} {} {{x}} {0}",
        ],
    )
    def test_every_other_brace_stays(self, rest: str) -> None:
        """Lesson B3."""
        assert mark_config_path("run -e {config_path}" + rest) == f"run -e {SPEC}{rest}"

    def test_several_and_here_documents(self) -> None:
        command = "python - {config_path} <<'PY'\nprint('{config_path}')\nPY"
        assert mark_config_path(command) == f"python - {SPEC} <<'PY'\nprint('{SPEC}')\nPY"

    def test_hyphens_and_underscores_are_alike(self) -> None:
        assert mark_config_path("run {config-path}") == f"run {SPEC}"


class TestEnvironment:
    def test_whole_and_embedded(self) -> None:
        spec = {"a": ["${env:KEY}", {"b": "s3://${env:B}/x/${env:B}"}], "n": 1, "o": None}
        assert resolve_env(spec, {"KEY": "k", "B": "bucket"}) == {
            "a": ["k", {"b": "s3://bucket/x/bucket"}],
            "n": 1,
            "o": None,
        }
        assert spec["a"][0] == "${env:KEY}"  # type: ignore[index]  # nested data of any type

    def test_other_interpolations_stay(self) -> None:
        spec = {"a": "${results_dir}/x ${oc.env:HOME} ${env:A,default} $env:A"}
        assert resolve_env(spec, {"A": "1"}) == spec

    def test_what_a_variable_holds_is_final(self) -> None:
        assert resolve_env("${env:A}", {"A": "${env:B}"}) == "${env:B}"

    def test_missing_variable(self) -> None:
        with pytest.raises(RunnerError, match=r"args: wandb\.keys\[1\]: the variable WANDB_KEY is"):
            resolve_env({"wandb": {"keys": ["", "${env:WANDB_KEY}"]}}, {}, root="args")

    def test_what_is_not_text_is_named(self) -> None:
        with pytest.raises(RunnerError, match="args: a: the variable BAD is not UTF-8 text"):
            resolve_env({"a": "${env:BAD}"}, {"BAD": "caf\udce9"}, root="args")

    def test_names(self) -> None:
        assert env_names({"a": "${env:B} ${env:A}", "c": ["${env:B}", "${x}"]}) == ["B", "A"]
        assert env_names(None) == []
