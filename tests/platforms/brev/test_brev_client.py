"""The brev program: found, checked, called; keys by environment and never as an argument."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tao_sdk.errors import BackendUnreachableError, CredentialError, PlatformError
from tao_sdk.platforms.brev import BrevSDK
from tao_sdk.platforms.brev.client import BrevClient, RefusedError
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import visible_command_lines
from tao_sdk.platforms.remote.streams import CutOffError

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
    assert BrevClient(folder).facts().create_flags == {"type", "detached"}
    assert BrevClient(folder).facts().version == (0, 6, 335)
    assert sorted((tmp_path / "asked").read_text().splitlines()) == ["--version", "create --help"]
    write(program, "echo v0.6.400")
    assert BrevClient(folder).facts().version == (0, 6, 400), "another program"


@pytest.mark.seed("000.4")
def test_a_key_goes_by_environment(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson E2: BREV_API_TOKEN is optional, and never an argument of anybody."""
    write(program, f'echo "$* $BREV_API_KEY" >> {tmp_path}/asked; echo "[]"')
    cli = BrevClient(tmp_path / "kept")
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
        BrevClient(tmp_path / "kept").instances()


def test_a_question_is_asked_again(program: Path, tmp_path: Path) -> None:
    count = tmp_path / "count"
    write(program, f'echo x >> {count}; [ "$(wc -l < {count})" -ge 3 ] || exit 1; echo "[]"')
    assert BrevClient(tmp_path / "kept").instances() == []


def test_an_order_is_not(program: Path, tmp_path: Path) -> None:
    write(program, f"echo x >> {tmp_path}/count; echo no >&2; exit 1")
    with pytest.raises(RefusedError, match="`brev create`: no"):
        BrevClient(tmp_path / "kept").create("tao-1", "g5.xlarge")
    assert (tmp_path / "count").read_text() == "x\n"


def test_an_answer_of_unknown_form(program: Path, tmp_path: Path) -> None:
    write(program, "echo 'NAME STATUS'")
    with pytest.raises(BackendUnreachableError, match="of unknown form"):
        BrevClient(tmp_path / "kept").instances()


def test_a_program_that_cannot_be_run(program: Path, tmp_path: Path) -> None:
    program.write_text("not a program")
    program.chmod(0o755)
    with pytest.raises(BackendUnreachableError, match="cannot be run"):
        BrevClient(tmp_path / "kept").instances()


def test_it_complains_on_its_output(program: Path, tmp_path: Path) -> None:
    """Its last words are on its output; what it was at before is on its error output."""
    write(program, "echo 'Connection failed, checking...' >&2; echo 'box is on fire'; exit 1")
    with pytest.raises(RefusedError, match="`brev stop`: box is on fire"):
        BrevClient(tmp_path / "kept").change("stop", "box")
    write(program, "echo 'Connection failed, checking...' >&2; echo 'log in? [y/n]: EOF'; exit 1")
    with pytest.raises(BackendUnreachableError, match="does not know you"):
        BrevClient(tmp_path / "kept").change("stop", "box")


@pytest.mark.parametrize("stream", ["", ">&2"], ids=["output", "error output"])
def test_why_no_instance_was_made(program: Path, tmp_path: Path, stream: str) -> None:
    """Its last word is the same whatever the reason; the reason is among what it said before."""
    write(
        program,
        f"""cat {stream} <<'END'
Attempting to create 1 instance(s) with 1 parallel attempts
[Worker 1] Trying g5.xlarge for instance 'tao-1'...
[Worker 1] g5.xlarge Failed: [error] create.go:12
: your organization has no credits

Warning: Only created 0/1 instances
END
echo 'could only create 0/1 instances'; exit 1""",
    )
    with pytest.raises(RefusedError, match=r"your organization has no credits$"):
        BrevClient(tmp_path / "kept").create("tao-1", "g5.xlarge")


def test_a_version_that_nobody_can_tell(program: Path, tmp_path: Path) -> None:
    """`brev --version` asks GitHub, which need not be reachable; Brev may be."""
    write(
        program,
        f'echo "$1" >> {tmp_path}/asked; case "$1" in '
        '--version) echo "Failed to retrieve latest version: 403" >&2; exit 1;; '
        "create) echo '--type --detached';; esac",
    )
    for _ in range(2):
        cli = BrevClient(tmp_path / "kept")
        cli.check()
        assert cli.facts().version is None
    assert (tmp_path / "asked").read_text().splitlines() == ["create", "--version"], "once"
    write(program, "echo 'v0.6.335 --type --detached'")
    assert BrevClient(tmp_path / "kept").facts().version == (0, 6, 335)


def test_one_that_cannot_do_what_is_needed(program: Path, tmp_path: Path) -> None:
    write(program, "echo 'v0.6.335 --gpu string'")
    with pytest.raises(PlatformError, match=r"no `create --detached`, `create --type`: install"):
        BrevClient(tmp_path / "kept").check()


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_what_it_started_ends_with_it(program: Path, tmp_path: Path, streaming: bool) -> None:
    """Its ssh would wait for ever for an instance that does not answer."""
    mark = f"600.{uuid.uuid4().int}"
    write(program, f"sleep {mark} & wait")
    cli = BrevClient(tmp_path / "kept")
    if streaming:
        with (
            pytest.raises(CutOffError, match="no answer for 3 s"),
            cli.executing("box", "true", 3.0, "exec") as running,
        ):
            running.read()
    else:
        with pytest.raises(BackendUnreachableError, match="did not answer within"):
            cli.execute("box", "true", 3.0, "exec")
    eventually(lambda: f"sleep {mark}" not in visible_command_lines())


def test_a_folder_with_a_colon(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`brev copy` takes what has a colon for a path on an instance."""
    write(program, f'case "$2" in *:*) exit 1;; esac; cat "$2" > {tmp_path}/copied')
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "file").write_text("data")
    monkeypatch.setenv("PATH", "bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    BrevClient(tmp_path / "kept").copy(folder / "file", "box", "there")
    assert (tmp_path / "copied").read_text() == "data"


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
