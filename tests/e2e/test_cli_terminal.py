"""What a person sees: width, colour, questions. The command runs in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import PATIENCE, Cli, clean_cli

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        made.environment["TERM"] = "xterm-256color"
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            made.environment.pop(name, None)
        yield made


def at_terminal(
    cli: Cli, *words: str, columns: int = 120, typed: str = "", code: int | None = 0
) -> str:
    """Run in a terminal of this width; what appeared on it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = cli.start(*words, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed.encode())
    seen = b""
    with open(ours, "rb", buffering=0) as screen:
        while piece := _read(screen.fileno()):
            seen += piece
    assert process.wait(PATIENCE) == code or code is None, seen
    return seen.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux: the other side is closed
        return b""


@pytest.fixture
def jobs(cli: Cli) -> list[str]:
    long = "echo " + "very " * 60 + "long"
    made = [cli.submit("-c", command) for command in ("exit 3", long, "echo [red]hi[/red]")]
    cli("wait", *made, code=3)
    return made


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
def test_a_job_is_one_line_of_the_table_at_any_width(
    cli: Cli, jobs: list[str], columns: int
) -> None:
    lines = ESCAPE.sub("", at_terminal(cli, "ls", columns=columns)).splitlines()
    assert [line.split()[0] for line in lines] == ["JOB", *(job[:8] for job in reversed(jobs))]
    assert all(len(line) <= columns for line in lines)
    assert ("ended with" in "".join(lines)) == (columns >= 100)


def test_states_are_coloured_and_commands_are_not_markup(cli: Cli, jobs: list[str]) -> None:
    seen = at_terminal(cli, "ls")
    assert "\x1b[1;31mError" in seen
    assert "\x1b[32mComplete" in seen
    assert "[red]hi[/red]" in seen


@pytest.mark.parametrize("words", [["ls"], ["status", "-"]])
def test_no_color_is_respected(cli: Cli, jobs: list[str], words: list[str]) -> None:
    assert ESCAPE.search(at_terminal(cli, *words))
    cli.environment["NO_COLOR"] = "1"
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", at_terminal(cli, *words))


def test_json_at_a_terminal_is_json(cli: Cli, jobs: list[str]) -> None:
    assert at_terminal(cli, "--json", "ls").startswith('{"schema": "tao-sdk/1"')


def test_long_values_of_a_status_are_not_cut(cli: Cli, jobs: list[str]) -> None:
    assert "very " * 60 + "long" in ESCAPE.sub("", at_terminal(cli, "status", jobs[1], columns=80))


HOSTILE = "\x1b[2J\x1b]0;owned\x07over\rwritten\x08\u202egnp.exe\u2066\x9b"
ESCAPED = r"\x1b[2J\x1b]0;owned\x07over\rwritten\x08\u202egnp.exe\u2066\x9b"


@pytest.fixture
def hostile(cli: Cli) -> str:
    """A job whose names, command and log would steer the terminal of a reader."""
    cli.environment["PYTHONIOENCODING"] = "utf-8"
    words = ["--network", HOSTILE, "--", "printf", "%s\n", f"RuntimeError: {HOSTILE}", HOSTILE]
    job = cli.submit(*words)
    cli("wait", job)
    return job


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["status", "-"],
        ["explain", "-"],
        ["logs", "-"],
        ["logs", "-f", "-"],
        ["plan", "--gpus", "0", "--network", HOSTILE, "--", "echo", HOSTILE],
        ["preflight", "-p", "local", "--gpus", "0", "--path", f"train=/{HOSTILE}"],
        ["run", "--no-watch", "--gpus", "0", "--", "echo", HOSTILE],
        ["status", HOSTILE],
        ["launch", HOSTILE],
    ],
    ids=lambda words: words[0],
)
def test_text_of_others_does_not_act_on_a_terminal(
    cli: Cli, hostile: str, words: list[str]
) -> None:
    code = None if words[0] in ("preflight", "status", "launch") else 0
    seen = at_terminal(cli, *words, columns=400, code=code)
    theirs = re.sub(r"\r?\x1b\[[0-9;]*[mK]", "", seen)  # colours and the line below the log
    acting = [char for char in theirs if unicodedata.category(char) in ("Cc", "Cf")]
    assert set(acting) == {"\n"}
    assert ESCAPED[:20] in theirs or words[0] == "explain"


def piped(cli: Cli, *words: str) -> str:
    """What a pipe gets, byte for byte."""
    out, _ = cli.start(*words, text=False).communicate(timeout=PATIENCE)
    return bytes(out).decode()


def test_a_pipe_and_raw_get_the_exact_log(cli: Cli, hostile: str) -> None:
    exact = f"RuntimeError: {HOSTILE}\n{HOSTILE}\n"
    assert piped(cli, "logs", "-") == exact
    assert at_terminal(cli, "logs", "--raw", "-") == exact
    assert HOSTILE in piped(cli, "plan", "--gpus", "0", "--", "echo", HOSTILE)


def test_a_line_drawn_many_times_is_shortened(cli: Cli) -> None:
    cli("wait", cli.submit("-c", "for i in $(seq 99); do printf '%s%%\\r' $i; done; echo done"))
    assert at_terminal(cli, "logs", "-") == "1%  [98 drawings left out; --raw shows them]  done\n"


def test_rm_asks_and_takes_no_for_an_answer(cli: Cli, jobs: list[str]) -> None:
    seen = at_terminal(cli, "rm", jobs[0], typed="n\n", code=1)
    assert "Remove 1 job and its results?" in seen
    assert len(cli("-q", "ls").split()) == 3
    at_terminal(cli, "rm", jobs[0], typed="y\n")
    assert len(cli("-q", "ls").split()) == 2


def test_ctrl_c_typed_at_the_terminal_leaves_the_job_running(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        cli.command("run", "--no-watch", "--gpus", "0", "-c", "echo ready; sleep 300"),
        cwd=cli.folder,
        env=cli.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        # The terminal's own Ctrl-C goes to the session that it controls.
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    os.close(theirs)
    seen = b""
    while b"ready" not in seen:
        seen += _read(ours)
    os.write(ours, b"\x03")
    while piece := _read(ours):
        seen += piece
    os.close(ours)
    assert process.wait(PATIENCE) == 130
    assert b"goes on" in seen
    assert cli.state_of("-") == "Running"
