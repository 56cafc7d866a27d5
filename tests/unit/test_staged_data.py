"""What platforms do for jobs that have the runner."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from tao_sdk.bundle.command import payload_of
from tao_sdk.bundle.payload import RunnerPayload
from tao_sdk.errors import SecretExposureError
from tao_sdk.platforms.request import Command, JobRequest, NoOptions, build_request
from tao_sdk.platforms.staged_data import (
    has_runner,
    results_in_bucket,
    runner_settings,
    stop_seconds,
    with_data,
)
from tao_sdk.script_runner import build_entrypoint

CONFIG = {"command": "train -e {config_path}", "specs": {"lr": 0.1}, "outputs": None}


def request_for(command: Command, **asked: Any) -> JobRequest:
    return build_request(
        NoOptions,
        image="",
        command=command,
        gpu_count=0,
        env_vars=asked.pop("env_vars", None),
        keywords=asked,
        platform="test",
    )


def test_the_runner_has_time_for_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace period and the delivery it writes its record and says how it ended."""
    monkeypatch.setenv("TAO_GRACE_SECONDS", "3")
    monkeypatch.setenv("TAO_DELIVERY_SECONDS", "40")
    assert stop_seconds(runner=False) == 3
    assert stop_seconds(runner=True) == 53


def test_a_packed_command_runs_unchanged() -> None:
    """Made by the public `build_entrypoint`: its payload is read, its words stay."""
    packed = build_entrypoint(**CONFIG)["command"]
    request = request_for(packed)
    assert request.shell_command == packed
    assert request.command == "train -e {config_path}"
    assert request.payload is not None
    assert request.payload.content == payload_of(packed)


def test_a_payload_is_packed_once_and_only_when_asked_for() -> None:
    packings = []

    def pack() -> str:
        packings.append(1)
        return "packed"

    payload = RunnerPayload({"command": "train", "outputs": {"s3": []}}, pack)
    request = request_for(payload)
    assert (request.command, packings) == ("train", [])
    assert request.shell_command == request.shell_command == "packed"
    assert packings == [1]


def test_declared_data_becomes_what_build_entrypoint_makes() -> None:
    data = {"inputs": {"/data": "s3://bucket/in"}, "outputs": ["/out"]}
    payload = with_data(["run", "a b"], data["inputs"], data["outputs"])
    packed = build_entrypoint(command="run 'a b'", **data)["command"]
    assert request_for(payload).shell_command == packed


def test_what_is_stored_has_the_payload_instead_of_the_packed_runner() -> None:
    stored = request_for(with_data("train", None, ["/out"])).to_dict()
    assert stored["command"] == "train"
    assert stored["payload"]["outputs"]
    assert len(json.dumps(stored)) < 2_000
    assert has_runner(stored)


def test_requests_of_the_version_before_are_understood() -> None:
    assert has_runner({"command": build_entrypoint(command="train")["command"]})
    assert not has_runner({"command": "train"})
    assert not has_runner({})


def test_secrets_in_a_payload_are_refused() -> None:
    payload = with_data("train --key a-secret-value", None, ["/out"])
    with pytest.raises(SecretExposureError, match="command"):
        request_for(payload, env_vars={"KEY": "a-secret-value"})


def test_where_the_runner_delivers() -> None:
    delivers = request_for(with_data("train", None, ["/out"]))
    env = {"S3_BUCKET_NAME": "bucket"}
    assert results_in_bucket(delivers, env, "id") == "s3://bucket/results/id"
    assert results_in_bucket(delivers, {}, "id") == ""
    assert results_in_bucket(request_for("train"), env, "id") == ""


def test_settings_of_the_runner_go_only_to_jobs_that_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAO_VERIFY", "size")
    assert runner_settings(request_for("train")) == {}
    assert runner_settings(request_for(with_data("train", None, ["/out"]))) == {
        "TAO_VERIFY": "size"
    }


def test_making_a_payload_warns_of_nothing() -> None:
    """Its note belongs into the plan."""
    from tao_sdk.script_runner import runner_payload

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        payload = runner_payload(command="train", specs={"lr": 0.1})
    assert "{config_path}" in payload.content["note"]
