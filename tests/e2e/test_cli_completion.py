"""Help, shell completion and the manual page: what one sees before a command does anything."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli_runner import Cli, clean_cli

from lab.packages import provide
from tao_sdk import JobStore
from tao_sdk import cli as command_line
from tao_sdk.cli.manual_page import escaped
from tao_sdk.cli.session import Session

COMMANDS = command_line._group.list_commands(click.Context(command_line._group))


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        yield made


def _record(store_file: Path, *job_ids: str) -> None:
    with JobStore(store_file) as store:
        for job_id in job_ids:
            store.create_job(job_id, "dino", "train", "", backend_type="moonbase", status="Running")


def _offers(cli: Cli, *words: str) -> list[str]:
    """What pressing the tab key offers behind these words."""
    environment = {
        **cli.environment,
        "_TAO_SDK_COMPLETE": "bash_complete",
        "COMP_WORDS": shlex.join(["tao-sdk", *words]),
        "COMP_CWORD": str(len(words)),
    }
    out, err = cli.both(env=environment)
    assert err == ""
    return [line.partition(",")[2] for line in out.split()]


# ---------------------------------------------------------------- completion

ONE = "aaaa1111-0000-4000-8000-000000000001"
TWO = "aaaa2222-0000-4000-8000-000000000002"
TWIN = "aaaa2222-0000-4000-8000-000000000003"


def test_commands_complete_without_being_loaded(cli: Cli) -> None:
    assert _offers(cli, "") == COMMANDS
    assert _offers(cli, "st") == ["status"]
    assert "--state" in _offers(cli, "--s")


@pytest.mark.parametrize("command", ["status", "explain", "logs", "pull", "wait", "cancel", "rm"])
def test_jobs_complete_from_the_store(cli: Cli, command: str) -> None:
    """The jobs are of a platform that is not installed: it cannot have been asked."""
    cli("ls")
    _record(cli.folder / "state" / "jobs.db", ONE, TWO, "experiment-7")
    assert _offers(cli, command, "") == ["experiment-7", TWO[:8], ONE[:8]]
    assert _offers(cli, command, "aaaa1") == [ONE[:8]]
    assert _offers(cli, command, ONE[:12]) == [ONE]
    assert _offers(cli, command, "bbbb") == []


def test_jobs_that_begin_alike_are_offered_whole(cli: Cli) -> None:
    cli("ls")
    _record(cli.folder / "state" / "jobs.db", ONE, TWO, TWIN)
    assert _offers(cli, "status", "aaaa") == [TWIN, TWO, ONE[:8]]


def test_a_state_file_on_the_line_is_honoured(cli: Cli) -> None:
    _record(cli.folder / "mine.tao.db", ONE)
    assert _offers(cli, "--state", "mine.json", "status", "") == [ONE[:8]]
    assert _offers(cli, "run", "--parent", "") == []


def test_completion_creates_nothing(cli: Cli) -> None:
    assert _offers(cli, "status", "") == []
    assert list(cli.folder.iterdir()) == []


def test_a_broken_store_does_not_disturb_the_prompt(cli: Cli) -> None:
    (cli.folder / "mine.tao.db").write_text("not a database" * 20, encoding="utf-8")
    assert _offers(cli, "--state", "mine.json", "status", "") == []


def test_platforms_complete(cli: Cli) -> None:
    assert _offers(cli, "run", "--platform", "lo") == ["local"]
    assert _offers(cli, "ls", "-p", "lo") == ["local"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells(cli: Cli, shell: str) -> None:
    script = cli("completion", shell)
    assert "_TAO_SDK_COMPLETE" in script
    [document] = cli.documents("completion", shell)
    assert document["script"].strip() == script.strip()  # type: ignore[attr-defined]  # JSON, of whatever shape
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_for_real(cli: Cli) -> None:
    cli("ls")
    _record(cli.folder / "state" / "jobs.db", ONE, TWO)
    tools = cli.folder / "tools"
    tools.mkdir()
    (tools / "tao-sdk").write_text(f'#!/bin/sh\nexec {shlex.join(cli.command())} "$@"\n')
    (tools / "tao-sdk").chmod(0o755)
    cli.environment["PATH"] = f"{tools}:{cli.environment['PATH']}"
    press_tab = """
        eval "$(tao-sdk completion bash)"
        COMP_WORDS=(tao-sdk status aaaa1) COMP_CWORD=2
        $(complete -p tao-sdk | sed 's/.* -F \\([^ ]*\\) .*/\\1/') tao-sdk aaaa1 status
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", press_tab], env=cli.environment, text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == ONE[:8]


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_fits_eighty_columns(cli: Cli, name: str) -> None:
    cli.environment["COLUMNS"] = "80"
    text = cli(name, "--help")
    assert "Examples:" in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


def _examples() -> list[str]:
    """Every call of `tao-sdk` in the examples of every command."""
    context = click.Context(command_line._group)
    calls = []
    for name in COMMANDS:
        command = command_line._group.get_command(context, name)
        assert command is not None
        for line in (command.epilog or "").splitlines():
            typed = line.rpartition("  # ")[0]
            typed = typed.replace("xargs tao-sdk", "tao-sdk").rstrip() + (" -" * ("xargs" in typed))
            calls += re.findall(r"(?<!/)tao-sdk (?:'[^']*'|[^|>&)])+", typed)
    return calls


@pytest.mark.parametrize("call", _examples())
def test_every_example_is_a_command_line(call: str) -> None:
    _, *words = shlex.split(call)
    group = command_line._group
    context = click.Context(group, obj=Session())
    while words[0] == "-q":
        words.pop(0)
    command = group.get_command(context, words[0])
    assert command is not None
    command.make_context(words[0], words[1:], parent=context)


# ---------------------------------------------------------------- manual


def test_the_manual_names_every_command_and_option(cli: Cli) -> None:
    page = cli("man")
    context = click.Context(command_line._group, info_name="tao-sdk")
    for name in COMMANDS:
        assert f'.SS "{name}"' in page
        command = command_line._group.get_command(context, name)
        assert command is not None
        for parameter in command.get_params(context):
            for option in parameter.opts if isinstance(parameter, click.Option) else ():
                assert escaped(option) in page
    assert "TAO_SDK_STATE_DIR" in page
    [document] = cli.documents("man")
    assert document["page"] == page.rstrip("\n")


@pytest.mark.parametrize(
    "linter",
    [
        ["man", "--warnings", "-E", "UTF-8", "-l", "-"],
        ["groff", "-ww", "-mandoc", "-Tutf8", "-z"],
    ],
    ids=lambda words: words[0],
)
def test_the_manual_is_sound(cli: Cli, linter: list[str]) -> None:
    provide([linter[0]], ["man-db", "groff"], lab="debian")
    done = linted(cli, linter)
    assert done.stderr == ""
    assert done.returncode == 0


def test_mandoc_misses_nothing_but_a_date(cli: Cli) -> None:
    """The page is made from the commands whenever it is shown."""
    provide(["mandoc"], ["mandoc"], lab="debian")
    done = linted(cli, ["mandoc", "-T", "lint", "-W", "warning"])
    (flaw,) = done.stdout.splitlines()
    assert "missing date" in flaw


def linted(cli: Cli, linter: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        linter,
        input=cli("man"),
        env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "100"},
        text=True,
        capture_output=True,
        check=False,
    )


def test_text_cannot_be_taken_for_a_request() -> None:
    assert escaped(".TH") == "\\&.TH"
    assert escaped("a\n.SH b") == "a\n\\&.SH b"
    assert escaped("'quoted' --option \\n") == "\\(aqquoted\\(aq \\-\\-option \\en"
