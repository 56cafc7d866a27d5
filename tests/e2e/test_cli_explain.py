"""`tao-sdk explain`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Cli, clean_cli, until
from test_cli_json import FAILURE_KEYS, check
from test_cli_terminal import ESCAPE, at_terminal


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        made.environment["TERM"] = "xterm-256color"
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            made.environment.pop(name, None)
        yield made


def _facts(text: str) -> dict[str, str]:
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


@pytest.mark.seed("000.19")
def test_a_failure_is_explained(cli: Cli) -> None:
    job = cli.submit("-c", "echo out of cheese >&2; exit 7")
    cli("wait", job, code=7)
    facts = _facts(cli("explain", job))
    assert facts["job"] == job
    assert "exit code 7" in facts["state"]
    assert facts["class"] == "ERR_PROGRAM"
    assert facts["cause"]
    assert facts["suggestion"]
    assert facts["retriable"].startswith("no")
    assert facts["exit code"] == "7"
    assert facts["evidence"] == "out of cheese"
    assert facts["whole log"] == f"tao-sdk logs {job[:8]}"
    assert "where" not in facts


@pytest.mark.seed("000.19")
def test_the_rank_that_failed_first_is_named(cli: Cli) -> None:
    job = cli.submit("--nodes", "2", "-c", "[ $NODE_RANK = 0 ] && sleep 300; exit 4")
    cli("wait", job, code=4)
    out = cli("explain", job)
    assert _facts(out)["where"] == "rank 1"
    assert "events" in out
    assert "rank 1: " in out


def test_the_explanation_outlives_the_job(cli: Cli) -> None:
    job = cli.submit("-c", "exit 7")
    cli("wait", job, code=7)
    shutil.rmtree(cli.folder / "state" / "local" / "jobs" / job)
    assert _facts(cli("explain", job))["exit code"] == "7"


def test_jobs_that_did_not_fail(cli: Cli) -> None:
    good, running = cli.submit("--", "true"), cli.submit("--", "sleep", "300")
    cli("wait", good)
    until(lambda: cli.state_of(running) == "Running", "running")
    first, _, second = cli("explain", good, running).splitlines()
    assert first.startswith(f"{good[:8]}  did not fail: Complete")
    assert second.startswith(f"{running[:8]}  has not ended: Running")


def test_documents(cli: Cli) -> None:
    bad, good = cli.submit("-c", "exit 7"), cli.submit("--", "true")
    cli("wait", good, bad, code=7)
    first, second = (
        check(document, "explanation") for document in cli.documents("explain", bad, good)
    )
    assert (first["job_id"], first["failed"]) == (bad, True)
    assert set(first["failure"]) >= FAILURE_KEYS
    assert (second["job_id"], second["failed"], second["failure"]) == (good, False, None)
    assert "did not fail" in second["message"]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_at_a_terminal_it_fits(cli: Cli, columns: int) -> None:
    long = "echo [bold]" + "very " * 60 + "long; exit 7"
    job = cli.submit("-c", long)
    cli("wait", job, code=7)
    seen = at_terminal(cli, "explain", job, columns=columns)
    lines = ESCAPE.sub("", seen).splitlines()
    assert max(len(line) for line in lines) <= columns
    assert "\x1b[1;31m" in seen
    assert "[bold]very" in " ".join(lines)
    assert " ".join(lines).split().count("very") == 59
