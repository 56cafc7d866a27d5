"""Leaving a job and coming back: Ctrl-C, signals, watchers."""

from __future__ import annotations

import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import PATIENCE, Cli, clean_cli, until


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        yield made


def _started_and_printing(cli: Cli, *words: str) -> tuple[subprocess.Popen[str], Path]:
    """`run` attached to a job that prints `ready` and then waits for the file that is returned."""
    gate = cli.folder / "gate"
    job = f"echo ready; until [ -e {gate} ]; do sleep 0.05; done; echo done"
    process = cli.start("run", "--gpus", "0", *words, "-c", job)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process, gate


@pytest.mark.seed("000.2", "000.6", "000.20")
def test_ctrl_c_detaches_and_the_job_goes_on(cli: Cli) -> None:
    process, gate = _started_and_printing(cli)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    job = cli("-q", "ls").strip()
    for way in ("logs -f", "wait", "cancel"):
        assert f"tao-sdk {way} {job[:8]}" in err
    assert cli.state_of(job) == "Running"
    gate.touch()
    assert cli("wait", job[:8]).startswith(f"{job[:8]}  Complete")
    assert cli("logs", "-f", job[:8]) == "ready\ndone\n"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_job_outlives_its_command_line_whatever_ends_that(cli: Cli, sent: signal.Signals) -> None:
    process, gate = _started_and_printing(cli, "--no-watch")
    process.send_signal(sent)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == (143 if sent is signal.SIGTERM else -sent)
    assert ("goes on" in err) == (sent is signal.SIGTERM)
    gate.touch()
    cli("wait", "-")


@pytest.mark.seed("000.6")
def test_the_way_back_names_the_state_file(cli: Cli) -> None:
    gate = cli.folder / "gate"
    job = f"echo ready; until [ -e {gate} ]; do sleep 0.05; done"
    state = ["--state", "my runs.json"]
    process = cli.start(*state, "run", "--no-watch", "--gpus", "0", "-c", job)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert f"tao-sdk --state '{cli.folder}/my runs.json' wait " in err
    gate.touch()
    cli(*state, "wait", "-")
    cli("wait", "-", code=125)


@pytest.mark.seed("000.2")
def test_another_process_follows_the_same_log(cli: Cli) -> None:
    gate = cli.folder / "gate"
    job = cli.submit("-c", f"echo ready; until [ -e {gate} ]; do sleep 0.05; done; echo done")
    followers = [cli.start("logs", "-f", name) for name in (job, job[:8], "-")]
    for follower in followers:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "ready\n"
    gate.touch()
    for follower in followers:
        assert follower.communicate(timeout=PATIENCE)[0] == "done\n"
        assert follower.returncode == 0


def test_detach_prints_the_id_and_nothing_else(cli: Cli) -> None:
    out, err = cli.both("run", "-d", "--no-watch", "--gpus", "0", "--", "sleep", "300")
    assert len(out.strip()) == 36
    assert err == ""
    assert cli.state_of(out.strip()) in ("Pending", "Running")


@pytest.mark.seed("000.6", "000.20")
def test_a_detached_run_is_watched_until_it_ends(cli: Cli) -> None:
    gate = cli.folder / "gate"
    job = cli("run", "-d", "--gpus", "0", "-c", f"until [ -e {gate} ]; do sleep 0.05; done").strip()
    log = cli.folder / "state" / "jobs.db.watch.log"
    until(lambda: log.exists() and "looking every" in log.read_text(encoding="utf-8"), "watched")
    assert "watched already" in cli.both("watch", code=125)[1]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    gate.touch()
    until(lambda: _stored_state(cli, job) == "Complete", "seen by the watcher")
    until(lambda: "watched already" not in cli.both("watch", "--detach")[0], "watcher gone")
    assert f"{job[:8]}  local  " in log.read_text(encoding="utf-8")


def _stored_state(cli: Cli, job: str) -> str:
    """What the store says, without asking the platform."""
    jobs = cli.documents("ls", "--no-refresh", "--all")[0]["jobs"]
    return next(str(j["status"]) for j in jobs if j["job_id"] == job)  # type: ignore[attr-defined]  # JSON, of whatever shape


def test_there_is_one_watcher_and_commands_leave_its_store_whole(cli: Cli) -> None:
    """A command that comes and goes must not remove the store's log under the watcher."""
    cli("run", "-d", "--gpus", "0", "--", "sleep", "300")
    database = cli.folder / "state" / "jobs.db"
    until(lambda: "watched already" in cli("watch", "--detach"), "watched")
    for _ in range(3):
        cli("ls")
        assert database.with_name("jobs.db-wal").exists()
    cli("cancel", "-")
    assert cli.state_of("-") == "Canceled"


def test_no_watch_starts_no_watcher(cli: Cli) -> None:
    cli.submit("--", "sleep", "300")
    assert not (cli.folder / "state" / "jobs.db.watch.log").exists()


def test_a_watcher_that_cannot_start_does_not_harm_the_job(cli: Cli) -> None:
    cli("ls")
    (cli.folder / "state" / "jobs.db.watch.log").mkdir()
    out, err = cli.both("run", "--gpus", "0", "--", "echo", "hi")
    assert out == "hi\n"
    assert "no watcher could be started" in err
