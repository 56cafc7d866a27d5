"""The brev program: found, checked, called; keys by environment and never as an argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_sdk.errors import BackendUnreachableError, CredentialError, PlatformError
from tao_sdk.platforms.brev import BrevSDK
from tao_sdk.platforms.brev.cli import BrevCli, RefusedError

JOB = {"image": "busybox", "command": "true", "gpu_count": 1, "instance_id": "box"}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `brev` whose answers a test writes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("BREV_API_TOKEN", "BREV_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return folder / "brev"


def write(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def sdk(tmp_path: Path) -> BrevSDK:
    return BrevSDK(state_file=tmp_path / "state.json")


def test_a_program_that_is_not_there(program: Path, tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=r"no program `brev` on PATH: install.*brev login"):
        sdk(tmp_path).create_job(**JOB)


def test_one_that_is_too_old(program: Path, tmp_path: Path) -> None:
    write(program, "echo v0.6.12")
    with pytest.raises(PlatformError, match=r"is 0\.6\.12, and 0\.6\.310 or newer is needed"):
        sdk(tmp_path).create_job(**JOB)


def test_asked_once_what_it_can_do(program: Path, tmp_path: Path) -> None:
    write(program, f'echo "$*" >> {tmp_path}/asked; echo "v0.6.335 --type --detached"')
    folder = tmp_path / "kept"
    assert BrevCli(folder).facts().create_flags == {"type", "detached"}
    assert BrevCli(folder).facts().version == (0, 6, 335)
    assert (tmp_path / "asked").read_text().splitlines() == ["--version", "create --help"]
    write(program, "echo v0.6.400")
    assert BrevCli(folder).facts().version == (0, 6, 400), "another program"


@pytest.mark.seed("000.4")
def test_a_key_goes_by_environment(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson E2: BREV_API_TOKEN is optional, and never an argument of anybody."""
    write(program, f'echo "$* $BREV_API_KEY" >> {tmp_path}/asked; echo "[]"')
    cli = BrevCli(tmp_path / "kept")
    cli.instances()
    monkeypatch.setenv("BREV_API_TOKEN", "bak-canary")
    cli.instances()
    monkeypatch.setenv("BREV_API_TOKEN", "another-kind-of-token")
    cli.instances()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["ls --json ", "ls --json bak-canary", "ls --json "]


@pytest.mark.seed("000.4")
@pytest.mark.parametrize("said", ["401 Unauthorized", "EOF", "currently logged out"])
def test_nobody_is_logged_in(program: Path, tmp_path: Path, said: str) -> None:
    write(program, f'[ "$1" != ls ] || {{ echo "Error: {said}" >&2; exit 1; }}; echo v0.6.335')
    with pytest.raises(CredentialError, match=r"brev login.*BREV_API_TOKEN"):
        sdk(tmp_path).create_job(**JOB)
    with pytest.raises(BackendUnreachableError, match="does not know you"):
        BrevCli(tmp_path / "kept").instances()


def test_a_question_is_asked_again(program: Path, tmp_path: Path) -> None:
    count = tmp_path / "count"
    write(program, f'echo x >> {count}; [ "$(wc -l < {count})" -ge 3 ] || exit 1; echo "[]"')
    assert BrevCli(tmp_path / "kept").instances() == []


def test_an_order_is_not(program: Path, tmp_path: Path) -> None:
    write(program, f"echo x >> {tmp_path}/count; echo no >&2; exit 1")
    with pytest.raises(RefusedError, match="`brev create`: no"):
        BrevCli(tmp_path / "kept").create("tao-1", "g5.xlarge")
    assert (tmp_path / "count").read_text() == "x\n"


def test_what_nobody_understands(program: Path, tmp_path: Path) -> None:
    write(program, "echo 'NAME STATUS'")
    with pytest.raises(BackendUnreachableError, match="nobody understands"):
        BrevCli(tmp_path / "kept").instances()


def test_a_program_that_cannot_be_run(program: Path, tmp_path: Path) -> None:
    program.write_text("not a program")
    program.chmod(0o755)
    with pytest.raises(BackendUnreachableError, match="cannot be run"):
        BrevCli(tmp_path / "kept").instances()


@pytest.mark.seed("000.9")
def test_the_eight_calls(program: Path, tmp_path: Path) -> None:
    """The names of the seed, Brev's two included; constructing asks nobody."""
    made = sdk(tmp_path)
    for name in (
        "create_job",
        "get_job_status",
        "get_job_logs",
        "cancel_job",
        "get_failure_analysis",
        "get_job_results_dir",
        "check_path",
        "list_path",
        "delete_instance",
        "list_instances",
    ):
        assert callable(getattr(made, name))
    assert not program.exists()
