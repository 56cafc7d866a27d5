"""What a person sees: width, colour, questions. The command runs in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
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


def at_terminal(cli: Cli, *words: str, columns: int = 120, typed: str = "", code: int = 0) -> str:
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
    assert process.wait(PATIENCE) == code, seen
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
