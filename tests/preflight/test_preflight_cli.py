"""`tao-sdk preflight` as its users run it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Cli, clean_cli
from launches import CANARIES, write_data

from lab.lepton import LeptonServer


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as cli:
        write_data(tmp_path / "data")
        cli.environment |= {"TAO_LOCAL_GPUS": "2", "HF_TOKEN": CANARIES["HF_TOKEN"]}
        yield cli


def test_lines_in_a_pipe(cli: Cli) -> None:
    data = cli.folder / "data"
    asked = ["preflight", "-p", "local", "--gpus", "2", "--path", f"train={data}/coco.json"]
    out = cli(*asked, "--require", "train=bbox", "--batch", "train=5,8", "--credential", "HF_TOKEN")
    lines = out.splitlines()
    assert "passed   fields:train: bbox in 20 of 40 records" in lines
    assert "passed   batch:train: 40 records in 8 shards are 5 each, a batch is 5" in lines
    assert re.fullmatch(r"Preflight passed: \d+ checks\.", lines[-1])
    assert CANARIES["HF_TOKEN"] not in out


def test_the_exit_code_tells_the_truth_and_the_remedy_is_shown(cli: Cli) -> None:
    out = cli("preflight", "-p", "local", "--path", "train=/no/such/path", code=1)
    assert out.splitlines()[-1].startswith("Preflight failed: path:train (1 of ")
    assert "\npath:train:\n  Check the path /no/such/path" in out
    _, complaint = cli.both("preflight", "-p", "mainframe", code=2)
    assert "no platform 'mainframe'" in complaint
    cli("preflight", "-p", "local", "--path", "x=", code=2)
    cli("preflight", "-p", "local", "--gpu-memory", "nan", code=2)


def test_the_usual_platform_is_that_of_the_other_commands(cli: Cli) -> None:
    cli.environment["TAO_PLATFORM"] = "lepton"
    assert "LEPTON_AUTH_TOKEN" in cli("preflight", code=1)


def test_options_of_the_launch_are_looked_at(cli: Cli, tmp_path: Path) -> None:
    with LeptonServer(tmp_path / "server") as server:
        cli.environment |= server.variables()
        asked = ["preflight", "-p", "dgx-cloud", "--gpus", "4"]
        assert "gpu.4xh100-sxm of node group main" in cli(*asked, "-o", "dedicated_node_group=main")
        out = cli(*asked, "-o", "dedicated_node_group=other", code=1)
        assert "the workspace has no 'other'; there is: main, full" in out
        _, complaint = cli.both(*asked, "-o", "node_group=main", code=2)
        assert "dedicated_node_group" in complaint
        cli(*asked, "-o", "ttl_seconds=soon", code=2)


def test_json(cli: Cli) -> None:
    [told] = cli.documents("preflight", "-p", "local", "--path", "x=/no", code=1)
    assert (told["kind"], told["ok"], told["platform"]) == ("preflight", False, "local")
    checks = {check["name"]: check for check in told["checks"]}  # type: ignore[attr-defined]  # JSON, of whatever shape
    assert sorted(checks["path:x"]) == ["details", "message", "name", "remedy", "status"]
    assert checks["path:x"]["status"] == "failed"
    assert CANARIES["HF_TOKEN"] not in json.dumps(told)


def test_nothing_is_made(cli: Cli) -> None:
    before = sorted(cli.folder.rglob("*"))
    cli("preflight", "-p", "local", "--path", f"x={cli.folder}")
    assert sorted(cli.folder.rglob("*")) == before


def test_at_a_terminal(cli: Cli) -> None:
    """Marks and colour, fitted to the width; the line of work is gone at the end."""
    ours, theirs = pty.openpty()
    long_name = cli.folder / ("a-very-long-name-" * 12)
    words = cli.command("preflight", "-p", "local", "--path", f"train={long_name}")
    environment = {**cli.environment, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(words, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert process.wait(timeout=60) == 1
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "✓ credentials" in text
    assert "✗ path:train" in text
    lines = [line.rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    assert lines[-2].startswith("Preflight failed: path:train")
    marked = [line for line in lines if line.startswith(("✓", "✗", "!", "-"))]
    assert max(map(len, marked)) <= 80
