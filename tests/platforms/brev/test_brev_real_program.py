"""Every command and flag that we use, against NVIDIA's own program where there is one.

It is public (github.com/brevdev/brev-cli, MIT) and not part of this project. No package index has
it: put it into the lab's cache, or name it: TAO_BREV_PROGRAM=/path/to/brev. Nothing is contacted:
only `--help` is called, in a home of its own. Without the program these tests are skipped; what it
does is then known from its public source only.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lab import unavailable
from lab.packages import cache
from tao_sdk.platforms.brev.client import OLDEST
from tao_sdk.platforms.brev.parse import parse_flags, parse_version

USED = {
    "ls": {"json"},
    "search": {"json"},
    "create": {"type", "detached"},
    "exec": set(),
    "copy": set(),
    "delete": set(),
    "start": {"detached"},
    "stop": set(),
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    named = Path(os.environ.get("TAO_BREV_PROGRAM", cache() / "brev" / "brev"))
    if not named.is_file():
        unavailable(
            "brev-program",
            f"{named} is not there",
            "go install github.com/brevdev/brev-cli@latest, and copy it there as `brev`",
        )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BREV_API_URL", "http://127.0.0.1:1")
    return named


def said(program: Path, *words: str) -> str:
    done = subprocess.run(
        [str(program), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("command", USED)
def test_commands_and_flags(program: Path, command: str) -> None:
    helped = said(program, command, "--help")
    assert re.search(rf"\b{command}\b", helped)
    assert USED[command] <= parse_flags(helped)


def test_it_is_new_enough(program: Path) -> None:
    version = parse_version(said(program, "--version"))
    assert version is None or version >= OLDEST


def test_exec_takes_a_command_and_no_input(program: Path) -> None:
    """Why secrets are copied: there is no other way in."""
    assert "stdin" in said(program, "exec", "--help")
