"""`tao-sdk pull`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import PATIENCE, Cli, clean_cli, until
from test_cli_json import check
from test_cli_terminal import ESCAPE, at_terminal

from tao_sdk import JobStore

RESULTS = 'cd "$TAO_RESULTS_ROOT/$TAO_JOB_ID"; '


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        made.environment["TERM"] = "xterm-256color"
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            made.environment.pop(name, None)
        yield made


def _job(cli: Cli, command: str) -> str:
    """A job that has ended after writing these results."""
    job = cli.submit("-c", RESULTS + command)
    cli("wait", job)
    return job


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _results(cli: Cli, job: str) -> Path:
    return cli.folder / "state" / "local" / "results" / job


def test_results_come_to_a_folder_of_the_jobs_name(cli: Cli) -> None:
    job = _job(cli, "mkdir train; echo weights > train/model.pth; echo {} > status.json")
    out, err = cli.both("pull", job[:8])
    assert out.splitlines() == ["status.json", "tao_result.json", "train/model.pth"]
    assert f"3 files copied ({sum(map(len, _files(_results(cli, job)).values()))} B)" in err
    assert _files(cli.folder / job[:8]) == _files(_results(cli, job))
    out, err = cli.both("pull", job[:8])
    assert out == ""
    assert "no files copied (0 B), 3 there already" in err


def test_a_choice_of_files_to_a_folder_of_ones_own(cli: Cli) -> None:
    job = _job(cli, "mkdir train; echo w > train/a.pth; echo w > train/b.pth; echo x > notes")
    words = ["--include", "*.pth", "--include", "notes", "--exclude", "b.*"]
    assert cli("pull", job, "deep/best", *words).splitlines() == ["notes", "train/a.pth"]
    assert set(_files(cli.folder / "deep" / "best")) == {"notes", "train/a.pth"}


def test_a_dry_run_copies_nothing(cli: Cli) -> None:
    job = _job(cli, "echo w > model")
    out, err = cli.both("pull", "--dry-run", job)
    assert out.splitlines() == ["model", "tao_result.json"]
    assert "2 files to copy" in err
    assert not (cli.folder / job[:8]).exists()
    *_, last = cli.documents("pull", "--dry-run", job)
    assert check(last, "pulled")["dry_run"] is True
    assert not (cli.folder / job[:8]).exists()


def test_documents(cli: Cli) -> None:
    job = _job(cli, "echo w > model; ln -s /etc/hosts out")
    *files, last = cli.documents("pull", job)
    states = {check(file, "pulled-file")["path"]: file["state"] for file in files}
    assert states == {"out": "skipped", "model": "copied", "tao_result.json": "copied"}
    check(last, "pulled")
    assert last["job_id"] == job
    assert last["destination"] == str(cli.folder / job[:8])
    assert last["complete"] is True
    assert last["counts"]["copied"] == 2  # type: ignore[index]  # JSON, of whatever shape
    *_, last = cli.documents("pull", job)
    assert last["counts"]["present"] == 2  # type: ignore[index]  # JSON, of whatever shape


def test_a_link_that_leads_out_is_skipped_with_a_warning(cli: Cli) -> None:
    job = _job(cli, "ln -s /etc/hosts out; echo w > model; ln -s model latest")
    _, err = cli.both("pull", job)
    assert "skipped: out: a link out of the results, to /etc/hosts" in err
    assert (cli.folder / job[:8] / "latest").readlink() == Path("model")
    assert not os.path.lexists(cli.folder / job[:8] / "out")


def test_what_could_not_be_copied_makes_the_exit_code_1(cli: Cli) -> None:
    job = _job(cli, "echo w > model; echo x > other")
    (cli.folder / job[:8] / "model").mkdir(parents=True)
    out, err = cli.both("pull", job, code=1)
    assert "failed: model: " in err
    assert "other" in out
    *_, last = cli.documents("pull", job, code=1)
    assert last["complete"] is False


def test_results_can_be_fetched_while_the_job_runs(cli: Cli) -> None:
    gate = cli.folder / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    job = cli.submit("-c", f"{RESULTS} echo 1 > first; echo ready; {wait}; echo 2 > second")
    until(lambda: cli("logs", job) == "ready\n", "ready")
    out, err = cli.both("pull", job)
    assert out.splitlines() == ["first"]
    assert "has not ended" in err
    gate.touch()
    cli("wait", job)
    assert "second" in cli("pull", job).splitlines()
    assert _files(cli.folder / job[:8]) == _files(_results(cli, job))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_pull_is_finished_by_the_next(cli: Cli, sent: signal.Signals) -> None:
    job = _job(cli, "echo 1 > a-small; head -c 300000000 /dev/zero > big; echo 2 > small")
    copy = cli.folder / job[:8]
    process = cli.start("pull", job)
    until(lambda: (copy / ".tao-pull" / "part").exists() and (copy / "a-small").exists(), "half")
    process.send_signal(sent)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == (130 if sent is signal.SIGINT else -sent)
    assert not (copy / "big").exists()
    assert ("pull again" in err) == (sent is signal.SIGINT)
    out = cli("pull", job)
    assert "big" in out.splitlines()
    assert "a-small" not in out.splitlines()
    assert (copy / "big").stat().st_size == 300_000_000
    assert not (copy / ".tao-pull").exists()


def test_verify_repairs_a_damaged_copy(cli: Cli) -> None:
    job = _job(cli, "echo weights > model")
    cli("pull", job)
    copy = cli.folder / job[:8] / "model"
    before = copy.stat()
    copy.write_text("weighty\n", encoding="utf-8")
    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cli("pull", job) == ""
    assert cli("pull", "--verify", job) == "model\n"
    assert copy.read_text(encoding="utf-8") == "weights\n"


def test_jobs_whose_results_cannot_be_fetched(cli: Cli) -> None:
    cli("ls")
    with JobStore(cli.folder / "state" / "jobs.db") as store:
        for name, place in {"nowhere": "", "afar": "s3://bucket/x", "lost": "/no/such"}.items():
            store.create_job(
                name, "", "", "", backend_type="local", status="Complete", results_dir=place
            )
    assert "where this job's results are" in cli.both("pull", "nowhere", code=125)[1]
    assert "s3://bucket/x" in cli.both("pull", "afar", code=125)[1]
    assert "/no/such" in cli.both("pull", "lost", code=125)[1]


@pytest.mark.parametrize("columns", [80, 120])
def test_at_a_terminal_there_is_a_bar_and_no_list(cli: Cli, columns: int) -> None:
    job = _job(cli, "head -c 3000000 /dev/zero > model; ln -s /etc/hosts out")
    seen = ESCAPE.sub("", at_terminal(cli, "pull", job, columns=columns))
    assert "3.0/3.0 MB" in seen
    assert "2 files copied" in seen
    assert "\nmodel\n" not in seen
