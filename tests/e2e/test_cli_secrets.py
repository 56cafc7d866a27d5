"""Environment values reach the job and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Cli, clean_cli


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        yield made


CANARY = "canary-7f3a9b2c51"


def test_a_secret_shows_up_nowhere(cli: Cli) -> None:
    """Values of environment variables are in no plan, record, file or listing."""
    cli.environment["FROM_MINE"] = f"{CANARY}-mine"
    secrets = cli.folder / "secrets.env"
    secrets.write_text(f"# mine\n\nFROM_FILE={CANARY}-file\nFROM_MINE\n", encoding="utf-8")
    secrets.chmod(0o600)
    given = ["--env", f"GIVEN={CANARY}-given", "--env", "FROM_MINE", "--env-file", str(secrets)]
    job = ["--gpus", "0", *given, "-c", 'echo "$GIVEN $FROM_MINE $FROM_FILE" | wc -c']
    said = "".join(cli.both("plan", *job)) + "".join(cli.both("--json", "plan", *job))
    said += "".join(cli.both("run", "--dry-run", *job)) + cli("--json", "run", "--detach", *job)
    cli("wait", "-")
    printed = f"{CANARY}-given {CANARY}-mine {CANARY}-file\n"
    assert cli("logs", "-").strip() == str(len(printed))
    for words in (["ls"], ["status", "-"], ["wait", "-"], ["logs", "-"]):
        said += "".join(cli.both(*words)) + "".join(cli.both("--json", *words))
    assert "GIVEN" in said
    assert CANARY not in said
    files = [path for path in (cli.folder / "state").rglob("*") if path.is_file()]
    assert any(path.name == "jobs.db" for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


def test_a_secret_in_the_command_is_refused_without_repeating_it(cli: Cli) -> None:
    words = ["run", "--gpus", "0", "--env", f"TOKEN={CANARY}", "-c", f"curl -H {CANARY}"]
    out, err = cli.both(*words, code=125)
    assert "TOKEN" in err
    assert CANARY not in out + err


def test_an_env_file_that_everybody_can_read_is_warned_about(cli: Cli) -> None:
    secrets = cli.folder / "secrets.env"
    secrets.write_text("A=1\n", encoding="utf-8")
    secrets.chmod(0o644)
    out, err = cli.both("-q", "run", "--gpus", "0", "--env-file", str(secrets), "-c", "echo $A")
    assert out == "1\n"
    assert f"chmod 600 {secrets}" in err
    secrets.chmod(0o600)
    assert "chmod" not in cli.both("run", "--gpus", "0", "--env-file", str(secrets), "-c", ":")[1]


def test_a_bad_env_file_is_named_by_line_and_not_quoted(cli: Cli) -> None:
    secrets = cli.folder / "secrets.env"
    secrets.write_text(f"A=1\nexport B={CANARY}\n", encoding="utf-8")
    secrets.chmod(0o600)
    out, err = cli.both("run", "--env-file", str(secrets), "-c", ":", code=2)
    assert "line 2" in err
    assert CANARY not in out + err


def test_env_wins_over_the_file(cli: Cli) -> None:
    file = cli.folder / "a.env"
    file.write_text("A=file\nB=file\n", encoding="utf-8")
    words = ["--env", "A=word", "--env-file", str(file), "-c", "echo $A $B"]
    assert cli("run", "--gpus", "0", *words) == "word file\n"


@pytest.mark.parametrize(
    "words",
    [
        ["launch", CANARY],
        ["launch", "dino", CANARY],
        ["launch", "dino", "-p", CANARY],
        ["preflight", "-p", CANARY],
        ["run", "-p", CANARY, "--", "true"],
        ["launch", "dino", "-p", "local", "--variant", CANARY],
        ["launch", "dino", "-p", "local", "-o", f"when_busy={CANARY}"],
        ["launch", "dino", "-p", "local", "--set", f"{CANARY}=1"],
        ["launch", "dino", "--bank", CANARY],
    ],
)
def test_a_token_typed_in_a_wrong_place_is_not_repeated(cli: Cli, words: list[str]) -> None:
    cli.environment["HF_TOKEN"] = CANARY
    said = "".join(cli.both(*words, code=2)) + "".join(cli.both("--json", *words, code=2))
    assert CANARY not in said
    assert "[secret]" in said or "HF_TOKEN" in said
