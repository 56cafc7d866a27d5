"""Starting `tao-sdk`, and `tao-sdk run` attached."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import SOURCE, Cli, clean_cli, until

import tao_sdk


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        yield made


@pytest.mark.parametrize("words", [["--version"], ["--help"], []])
def test_version_and_help_load_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from tao_sdk.cli import main\n"
        f"main({words!r})\n"
        "heavy = ('tao_sdk.platforms', 'tao_sdk.job_store', 'rich', 'yaml', 'sqlite3')\n"
        "found = [m for m in sys.modules if m.startswith(heavy)]\n"
        "assert not found, found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert tao_sdk.__version__ in done.stdout or "Exit codes:" in done.stdout


def test_every_command_has_help_that_begins_like_the_table(cli: Cli) -> None:
    listed = cli("--help").partition("Commands:")[2].partition("Exit codes:")[0]
    table = [line.split(None, 1) for line in listed.splitlines() if line.strip()]
    assert len(table) == 18
    for name, summary in table:
        assert " ".join(cli(name, "--help").split()).find(" ".join(summary.split())) > 0


def test_a_misspelt_command_is_a_usage_error_with_a_hint(cli: Cli) -> None:
    _, err = cli.both("statsu", code=2)
    assert "did you mean 'status'?" in err


def test_run_follows_the_log_and_mirrors_success(cli: Cli) -> None:
    out, err = cli.both("run", "--gpus", "0", "--", "sh", "-c", "echo one; echo two")
    assert out == "one\ntwo\n"
    job = cli("-q", "ls").strip()
    assert f"job      {job}" in err
    assert f"results  {cli.folder}/state/local/results/{job}" in err
    assert "Complete" in err


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_run_mirrors_the_job_and_says_why_it_failed(cli: Cli, command: str, code: int) -> None:
    """A failed job must not look like success to the shell."""
    _, err = cli.both("run", "--gpus", "0", "-c", command, code=code)
    assert "cause: " in err
    assert "suggestion: " in err


def test_words_reach_the_program_as_they_are(cli: Cli) -> None:
    out = cli("run", "--gpus", "0", "--", "echo", "a b", "$(touch pwned)", "`id`", "x;y", "*", "")
    assert out == "a b $(touch pwned) `id` x;y * \n"
    assert not (cli.folder / "pwned").exists()


def test_options_of_the_program_need_no_dashes_before_it(cli: Cli) -> None:
    assert cli("run", "--gpus", "0", "echo", "--json", "-d") == "--json -d\n"


def test_command_is_a_line_for_the_shell(cli: Cli) -> None:
    assert cli("run", "--gpus", "0", "-c", "echo $((6*7)) | tr 4 5") == "52\n"


def test_one_word_with_spaces_is_a_program_and_that_is_said(cli: Cli) -> None:
    _, err = cli.both("run", "--gpus", "0", "--", "echo hi", code=127)
    assert "--command" in err


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "-c", "true", "--", "true"],
        ["run", "--env", "=x", "--", "true"],
        ["run", "--env", "TAO_TEST_NOT_SET", "--", "true"],
        ["run", "--option", "when_busy", "--", "true"],
        ["run", "--cwd", "/", "--option", "cwd=/tmp", "--", "true"],
        ["run", "--gpus", "many", "--", "true"],
        ["run", "-p", "nowhere", "--", "true"],
        ["plan", "-p", "nowhere", "--", "true"],
        ["status"],
        ["wait", "--timeout", "soon", "-"],
        ["ls", "--status", "Banana"],
        ["watch", "--detach", "--once"],
        ["rm"],
        ["rm", "-", "--older-than", "1d"],
        ["rm", "--older-than", "30"],
    ],
)
def test_a_wrong_command_line_ends_with_2_and_starts_nothing(cli: Cli, words: list[str]) -> None:
    _, err = cli.both(*words, code=2)
    assert "tao-sdk: " in err
    assert cli("-q", "ls") == ""


@pytest.mark.parametrize("words", [["run", "--", "true"], ["plan", "--", "true"], ["preflight"]])
def test_a_platform_that_is_not_there_is_named_with_its_source(cli: Cli, words: list[str]) -> None:
    name, *rest = words
    _, err = cli.both(name, "--platform", "nowhere", *rest, code=2)
    assert "Invalid value for --platform: no platform 'nowhere'" in err
    assert "local" in err.splitlines()[-1], "it says what there is"
    cli.environment["TAO_PLATFORM"] = "nowhere"
    _, err = cli.both(*words, code=2)
    assert "Invalid value for TAO_PLATFORM: no platform 'nowhere'" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--option", "when_bussy=wait"], "did you mean 'when_busy'"),
        (["--option", "when_busy=never"], "when_busy"),
        (["--cwd", "/no/such/folder"], "/no/such/folder"),
        (["--parent", "feedbeef"], "no job 'feedbeef'"),
    ],
)
def test_what_the_sdk_refuses_ends_with_125(cli: Cli, words: list[str], said: str) -> None:
    _, err = cli.both("run", "--gpus", "0", *words, "--", "true", code=125)
    assert err.startswith("tao-sdk: ")
    assert said in err
    assert cli("-q", "ls") == ""


def test_run_passes_its_options_on(cli: Cli) -> None:
    parent = cli.submit("--", "true")
    cli("wait", parent)
    (cli.folder / "work").mkdir()
    options = ["--network", "dino", "--action", "train", "--parent", parent[:8], "--nodes", "2"]
    where = ["--cwd", "work", "--option", f"results_root={cli.folder}/results"]
    job = cli.submit(*options, *where, "-c", "pwd")
    cli("wait", job)
    [found] = cli.documents("status", job)[0]["jobs"]  # type: ignore[attr-defined]  # JSON, of whatever shape
    assert (found["network_arch"], found["action"]) == ("dino", "train")
    assert found["parent_job_id"] == parent
    assert found["num_nodes"] == 2
    assert found["results_dir"] == f"{cli.folder}/results/{job}"
    assert cli("logs", job).splitlines() == [f"[rank {rank}] {cli.folder}/work" for rank in (0, 1)]


def test_an_option_may_be_a_number_or_a_list(cli: Cli) -> None:
    cli.environment["TAO_LOCAL_GPUS"] = "4"
    options = ["--option", "step_id=7", "--option", "gpu_ids=1,3"]
    out, err = cli.both("run", "--no-watch", *options, "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert out == "1,3\n"
    assert "is assumed" not in err


@pytest.mark.parametrize(("gpus", "given"), [("2", "1"), ("", "0")])
def test_the_number_of_gpus_that_is_assumed_is_said(cli: Cli, gpus: str, given: str) -> None:
    cli.environment.update(TAO_LOCAL_GPUS=gpus, PATH=_path_without_gpus(cli.folder))
    out, err = cli.both("run", "-c", "echo ${CUDA_VISIBLE_DEVICES:-none}")
    assert f"note: --gpus {given} is assumed" in err
    assert (out.strip() == "none") == (given == "0")


def _path_without_gpus(folder: Path) -> str:
    """A PATH with the tools that a job needs, on which no nvidia-smi is found."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "date", "mkdir", "mv", "cat", "printf", "rm", "hostname", "uname"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    return str(tools)


def test_a_refused_job_ends_with_125_and_is_on_record(cli: Cli) -> None:
    cli.environment["TAO_LOCAL_GPUS"] = "1"
    first = cli("run", "-d", "--no-watch", "--gpus", "1", "--", "sleep", "300").strip()
    until(lambda: cli.state_of(first) == "Running", "the first job has the GPU")
    words = ["--gpus", "1", "-o", "when_busy=refuse", "--", "true"]
    _, err = cli.both("run", "--no-watch", *words, code=125)
    assert "GPU" in err
    assert cli.state_of("-") == "Error"
