"""What is done before the command, as far as no store is needed for it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tao_sdk.bundle.command import payload_of
from tao_sdk.runner.context import read_context
from tao_sdk.runner.destinations import destination
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.prepare import Prepared, prepare
from tao_sdk.runner.report import Reporter
from tao_sdk.script_runner import build_entrypoint

SPEC = {"out": "s3://${env:BUCKET}/x", "key": "${env:KEY}"}


def prepared(tmp_path: Path, env: dict[str, str]) -> Prepared:
    command = build_entrypoint(command="run {config_path}", specs=SPEC, outputs={"out": {}})
    context = read_context({"TAO_JOB_ID": "job", "TAO_WORK_ROOT": str(tmp_path), **env})
    payload = payload_of(command["command"])
    to = destination(context.env, context.work)
    return prepare(payload, context, to, Reporter(io.StringIO()))


def test_variables_in_the_uris_of_outputs(tmp_path: Path) -> None:
    """Where results go may be known in the container only, as what is in the spec is."""
    found = prepared(tmp_path, {"BUCKET": "mine", "KEY": "k"})
    (output,) = found.outputs
    assert output.uri == "s3://mine/x"
    spec = (tmp_path / "job" / "spec.toml").read_text()
    assert spec == f'out = "{output.local}"\nkey = "k"\n'
    assert found.command == f"run {tmp_path}/job/spec.toml"


def test_a_variable_that_is_not_set(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match=r"specs: key: the variable KEY is not set"):
        prepared(tmp_path, {"BUCKET": "mine"})
