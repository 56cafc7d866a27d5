"""The single functions of `tao_sdk.preflight`: one question each, and none of them raises."""

from __future__ import annotations

import inspect
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tao_sdk import preflight
from tao_sdk.preflight import (
    PreflightResult,
    check_gpu_architecture_compatibility,
    check_nvidia_container_runtime,
    ensure_aws_cli,
    normalize_supported_sms,
    parse_compute_capabilities,
    query_host_sms,
)


def answering(
    stdout: str = "", code: int = 0, stderr: str = "", calls: list[Any] | None = None
) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if calls is not None:
            calls.append((words, options))
        return subprocess.CompletedProcess(words, code, stdout, stderr)

    return run


def refusing(error: Exception) -> Callable[..., Any]:
    def run(*_: Any, **__: Any) -> Any:
        raise error

    return run


@pytest.mark.parametrize(
    ("name", "positional", "named"),
    [
        ("ensure_aws_cli", [], ["auto_install", "python_executable", "which", "run"]),
        ("parse_compute_capabilities", ["output"], []),
        ("query_host_sms", [], ["run", "timeout"]),
        ("normalize_supported_sms", ["values"], []),
        ("check_gpu_architecture_compatibility", ["host_sms", "supported_sms"], ["image"]),
        ("check_nvidia_container_runtime", [], ["run", "timeout"]),
    ],
)
def test_signatures(name: str, positional: list[str], named: list[str]) -> None:
    parameters = inspect.signature(getattr(preflight, name)).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    assert [p.name for p in parameters if p.kind is not keyword] == positional
    assert [p.name for p in parameters if p.kind is keyword] == named
    assert all(p.default is not inspect.Parameter.empty for p in parameters if p.kind is keyword)


def test_a_result_has_details_of_its_own() -> None:
    assert PreflightResult(True, "fine").details == {}
    assert PreflightResult(True, "fine").details is not PreflightResult(True, "fine").details


class TestAws:
    def test_found(self) -> None:
        found = ensure_aws_cli(which=lambda _: "/bin/aws", run=refusing(AssertionError()))
        assert (found.ok, found.details) == (True, {"path": "/bin/aws"})

    def test_missing_and_nothing_is_installed_unasked(self) -> None:
        found = ensure_aws_cli(
            which=lambda _: None, run=refusing(AssertionError()), python_executable="py"
        )
        assert not found.ok
        assert found.details["install_command"] == "py -m pip install awscli"

    def test_installed_when_asked(self) -> None:
        paths = iter([None, "/new/aws"])
        calls: list[Any] = []
        found = ensure_aws_cli(
            auto_install=True,
            which=lambda _: next(paths),
            run=answering(calls=calls),
            python_executable="py",
        )
        assert (found.ok, found.details["path"]) == (True, "/new/aws")
        assert [words for words, _ in calls] == [["py", "-m", "pip", "install", "awscli"]]

    @pytest.mark.parametrize(
        ("run", "says"),
        [
            (answering(code=1, stderr="no network"), "no network"),
            (answering(), "still not on PATH"),
            (refusing(subprocess.TimeoutExpired("pip", 1)), "did not answer"),
        ],
    )
    def test_an_installation_that_did_not_help(self, run: Callable[..., Any], says: str) -> None:
        found = ensure_aws_cli(auto_install=True, which=lambda _: None, run=run)
        assert not found.ok
        assert says in found.message


class TestArchitectures:
    def test_capabilities(self) -> None:
        told = "compute_cap\n8.0\n\n12.1 \n8.0\n[N/A]\n"
        assert parse_compute_capabilities(told) == ["sm_80", "sm_121", "sm_80"]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (None, set()),
            ("sm_80 sm80,sm-80;8.0", {"sm_80"}),
            (["90", "compute_90", "9.0", "SM_90"], {"sm_90"}),
            (("sm_100, 12.0", "junk", "", "9", "sm_90a"), {"sm_100", "sm_120", "sm_90"}),
        ],
    )
    def test_all_forms_are_equal(self, values: Any, expected: set[str]) -> None:
        assert normalize_supported_sms(values) == expected

    def test_compatible_or_not(self) -> None:
        assert check_gpu_architecture_compatibility(["9.0"], ["sm_90"]).ok
        assert not check_gpu_architecture_compatibility([], ["sm_90"]).ok
        unknown = check_gpu_architecture_compatibility(["sm_90"], [])
        assert unknown.ok
        assert "unknown" in unknown.message
        assert "not enforced" in unknown.message
        refused = check_gpu_architecture_compatibility(
            ["sm_121", "8.6", "9.0"], ["sm_90"], image="registry/x"
        )
        assert refused.details["unsupported_sms"] == ["sm_121", "sm_86"]
        assert "registry/x" in refused.message

    def test_of_this_machine(self) -> None:
        calls: list[Any] = []
        found = query_host_sms(run=answering("9.0\n9.0\n", calls=calls), timeout=3)
        assert (found.ok, found.details["sms"]) == (True, ["sm_90", "sm_90"])
        [(words, options)] = calls
        assert words == ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
        assert options["timeout"] == 3

    @pytest.mark.parametrize(
        "run",
        [
            answering("", code=9, stderr="driver"),
            answering("no devices"),
            refusing(FileNotFoundError()),
            refusing(subprocess.TimeoutExpired("x", 1)),
            refusing(PermissionError("no")),
        ],
    )
    def test_it_never_raises(self, run: Callable[..., Any]) -> None:
        assert not query_host_sms(run=run).ok
        assert not check_nvidia_container_runtime(run=run).ok


def test_runtime() -> None:
    calls: list[Any] = []
    told = json.dumps({"nvidia": {"path": "x"}, "runc": {}})
    assert check_nvidia_container_runtime(run=answering(told, calls=calls)).ok
    assert calls[0][0] == ["docker", "info", "--format", "{{json .Runtimes}}"]
    missing = check_nvidia_container_runtime(run=answering('{"runc":{}}'))
    assert not missing.ok
    assert "nvidia-ctk" in missing.message
