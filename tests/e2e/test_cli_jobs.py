"""The commands about jobs: which job is meant, and what is said about it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import PATIENCE, Cli, clean_cli, until

from tao_sdk import JobStore


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        yield made


# ---------------------------------------------------------------- which job is meant


@pytest.mark.seed("000.2", "000.20")
def test_a_job_goes_by_id_prefix_dash_and_address(cli: Cli) -> None:
    job = cli.submit("--", "true")
    cli("wait", job)
    address = cli.documents("status", job)[0]["jobs"][0]["uri"]  # type: ignore[index]  # JSON, of whatever shape
    assert address == f"tao://local/{job}?state={cli.folder}/state/jobs.db"
    for reference in (job, job[:4], "-", address):
        assert job in cli("status", reference)


def test_an_address_leads_to_its_store_from_anywhere(cli: Cli) -> None:
    state = ["--state", "elsewhere.json"]
    cli(*state, "run", "--no-watch", "--gpus", "0", "--", "echo", "hello")
    address = cli.documents(*state, "status", "-")[0]["jobs"][0]["uri"]  # type: ignore[index]  # JSON, of whatever shape
    assert address.endswith(f"?state={cli.folder}/elsewhere.tao.db")
    assert cli("logs", address) == "hello\n"
    assert (cli.folder / "elsewhere.tao.db").exists()
    cli("logs", address.partition("?")[0], code=125)


def test_an_address_of_the_default_store_leads_there_whatever_the_setting(cli: Cli) -> None:
    state = cli.environment.pop("TAO_SDK_STATE_DIR")
    cli.environment["HOME"] = str(cli.folder / "home")
    job = cli.submit("--", "echo", "hello")
    cli("wait", job)
    cli.environment["TAO_SDK_STATE_DIR"] = state
    assert cli("logs", f"tao://local/{job}") == "hello\n"
    said = f"no job {job}s of local in {state}/jobs.db or {cli.folder}/home/.tao_sdk/jobs.db"
    assert said in cli.both("logs", f"tao://local/{job}s", code=125)[1]


def _record(cli: Cli, *job_ids: str, status: str = "Complete", platform: str = "local") -> None:
    """Jobs in the store as another program may have left them."""
    with JobStore(cli.folder / "state" / "jobs.db") as store:
        for job_id in job_ids:
            store.create_job(job_id, "", "", "", backend_type=platform, status=status)


@pytest.mark.parametrize("command", ["status", "logs", "wait", "cancel", "rm"])
def test_references_that_mean_no_job_or_several(cli: Cli, command: str) -> None:
    cli("ls")
    _record(cli, "twin-a", "twin-b")
    for reference, said in [
        ("twin", "several"),
        ("twi", "at least 4 characters"),
        ("nobody", "no job"),
        ("tao://docker/twin-a", "no job twin-a of docker"),
        ("tao://nonsense", "not a job address"),
    ]:
        _, err = cli.both(command, reference, code=125)
        assert said in err, reference
    assert "twin-a" in cli.both(command, "twin", code=125)[1]


def test_the_newest_of_an_empty_store(cli: Cli) -> None:
    assert "no job" in cli.both("status", "-", code=125)[1]


def test_a_job_named_twice_counts_once(cli: Cli) -> None:
    job = cli.submit("--", "true")
    assert cli("wait", job, "-", job[:8]).count("Complete") == 1


# ---------------------------------------------------------------- ls


def test_ls_in_a_pipe_is_tab_separated_with_whole_ids(cli: Cli) -> None:
    job = cli.submit("--network", "dino", "--action", "train", "-c", "echo hi")
    other = cli.submit("-c", "echo '\x1b[2J'\t'two\nlines'")
    cli("wait", job, other)
    heading, second, first = cli("ls").splitlines()
    assert heading.split("\t")[:3] == ["JOB", "PLATFORM", "STATE"]
    assert first.split("\t")[:3] == [job, "local", "Complete"]
    assert first.split("\t")[6] == "dino train"
    assert second.split("\t")[6] == r"echo '\x1b[2J' 'two lines'"
    assert len(second.split("\t")) == len(heading.split("\t"))


def test_ls_shows_the_newest_and_tells_of_the_others(cli: Cli) -> None:
    cli("ls")
    _record(cli, *(f"job-{number:02}" for number in range(25)))
    out, err = cli.both("-q", "ls")
    assert out.split() == [f"job-{number:02}" for number in range(24, 4, -1)]
    assert err == ""
    out, err = cli.both("ls", "-n", "3")
    assert len(out.splitlines()) == 4
    assert "--all" in err
    assert len(cli("-q", "ls", "-a").split()) == 25
    assert cli.documents("ls")[0]["more"] is True
    assert cli.documents("ls", "--all")[0]["more"] is False


def test_ls_filters_by_state_as_it_is_now(cli: Cli) -> None:
    ended = cli.submit("--", "true")
    until(lambda: (cli.folder / f"state/local/results/{ended}/tao_result.json").exists(), "ended")
    running = cli.submit("--", "sleep", "300")
    assert cli("-q", "ls", "--no-refresh", "-s", "complete").split() == []
    until(lambda: cli("-q", "ls", "-s", "COMPLETE").split() == [ended], "seen as Complete")
    until(lambda: cli("-q", "ls", "-s", "running").split() == [running], "seen as Running")
    assert cli("-q", "ls", "--platform", "virtualenv") == ""


def test_ls_and_status_show_jobs_of_a_platform_that_is_not_here(cli: Cli) -> None:
    cli("ls")
    _record(cli, "job-afar", status="Running", platform="moonbase")
    out, err = cli.both("ls")
    assert "\tRunning\t" in out
    assert "moonbase" in err
    out, err = cli.both("status", "job-afar")
    assert "Running" in out
    assert "as last known" in err
    assert "moonbase" in cli.both("logs", "job-afar", code=125)[1]


def test_ls_of_an_empty_store_says_how_to_begin(cli: Cli) -> None:
    out, err = cli.both("ls")
    assert out == ""
    assert "tao-sdk run" in err


# ---------------------------------------------------------------- status, wait, cancel


@pytest.mark.seed("000.18", "000.19")
def test_status_tells_state_cause_and_suggestion(cli: Cli) -> None:
    job = cli.submit("-c", "echo out of cheese >&2; exit 7")
    cli("wait", job, code=7)
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in cli("status", job).splitlines())
    assert facts["job"] == job
    assert re.fullmatch(r"Error after .* s, exit code 7", facts["state"])
    assert "exit code 7" in facts["cause"]
    assert "[ERR_PROGRAM]" in facts["cause"]
    assert facts["evidence"] == "out of cheese"
    assert "suggestion" in facts
    assert facts["address"] == f"tao://local/{job}?state={cli.folder}/state/jobs.db"


@pytest.mark.seed("000.18")
def test_status_follows_a_job_through_its_states(cli: Cli) -> None:
    gate = cli.folder / "gate"
    job = cli.submit("-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    until(lambda: cli.state_of(job) == "Running", "running")
    assert "Running for" in cli("status", job)
    gate.touch()
    until(lambda: cli.state_of(job) == "Complete", "complete")


def test_wait_mirrors_the_first_that_failed(cli: Cli) -> None:
    good, bad, worse = (cli.submit("-c", f"exit {code}") for code in (0, 4, 5))
    assert cli("wait", good).split()[1] == "Complete"
    out, err = cli.both("wait", good, worse, bad, code=5)
    assert [line.split()[0] for line in out.splitlines()] == [j[:8] for j in (good, worse, bad)]
    assert "cause: " in err
    cli("wait", bad, worse, code=4)


def test_wait_gives_up_with_124_and_the_job_goes_on(cli: Cli) -> None:
    job = cli.submit("--", "sleep", "300")
    _, err = cli.both("wait", "--timeout", "0.2", job, code=124)
    assert "and go on" in err
    until(lambda: cli.state_of(job) == "Running", "running")


def test_cancel_stops_jobs_and_wait_tells_143(cli: Cli) -> None:
    jobs = [cli.submit("--", "sleep", "300") for _ in range(3)]
    out = cli("cancel", *jobs)
    assert [line.split()[:2] for line in out.splitlines()] == [[j[:8], "Canceled"] for j in jobs]
    cli("wait", *jobs, code=143)
    cli("run", "--gpus", "0", "-c", "exit 3", code=3)
    assert cli("cancel", "-", jobs[0]).split()[1] == "Error"


def test_run_ends_with_143_when_its_job_is_cancelled(cli: Cli) -> None:
    process = cli.start("run", "--no-watch", "--gpus", "0", "-c", "echo ready; sleep 300")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    cli("cancel", "-")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 143


# ---------------------------------------------------------------- logs


def test_logs_by_tail_and_cursor(cli: Cli) -> None:
    job = cli.submit("-c", "for i in 1 2 3 4 5; do echo line $i; done")
    cli("wait", job)
    assert cli("logs", job).splitlines() == [f"line {n}" for n in range(1, 6)]
    assert cli("logs", "--tail", "2", job) == "line 4\nline 5\n"
    second = cli.documents("logs", job)[1]
    assert second["text"] == "line 2"
    assert cli("logs", "--cursor", str(second["cursor"]), job).startswith("line 3\n")
    assert "cursor" in cli.both("logs", "--cursor", "nonsense", job, code=125)[1]
    cli("logs", "--tail", "-1", job, code=125)


def test_logs_of_one_node(cli: Cli) -> None:
    job = cli.submit("--nodes", "2", "-c", "echo I am $NODE_RANK")
    cli("wait", job)
    assert cli("logs", "--rank", "1", job) == "I am 1\n"
    assert "counted from 0" in cli.both("logs", "--rank", "2", job, code=2)[1]
    alone = cli.submit("-c", "echo alone")
    cli("wait", alone)
    assert cli("logs", "--rank", "0", alone) == "alone\n"
    assert "--rank or --tail" in cli.both("logs", "--rank", "1", "-n", "5", job, code=2)[1]


def test_a_log_may_hold_any_bytes(cli: Cli) -> None:
    job = cli.submit("-c", r"printf 'caf\351 \342\202\254\n'")
    cli("wait", job)
    cli.environment.update(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert cli("logs", job) == "caf? ?\n"


def test_a_reader_that_leaves_ends_the_command_quietly(cli: Cli) -> None:
    job = cli.submit("-c", "for i in $(seq 20000); do echo line $i; done")
    cli("wait", job)
    process = cli.start("logs", job)
    assert process.stdout is not None
    assert process.stdout.readline() == "line 1\n"
    process.stdout.close()
    assert process.wait(PATIENCE) == 141
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_a_run_whose_reader_leaves_detaches(cli: Cli) -> None:
    talk = "echo ready; while :; do echo more; sleep 0.05; done"
    process = cli.start("run", "--no-watch", "--gpus", "0", "-c", talk)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    assert process.wait(PATIENCE) == 141
    assert process.stderr is not None
    assert "goes on" in process.stderr.read()
    assert cli.state_of("-") == "Running"


# ---------------------------------------------------------------- watch


def test_watch_reports_changes_until_no_job_is_open(cli: Cli) -> None:
    gate = cli.folder / "gate"
    job = cli.submit("-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    process = cli.start("watch", "--interval", "0.1")
    assert process.stdout is not None
    assert "Pending -> Running" in process.stdout.readline()
    gate.touch()
    rest, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert f"{job[:8]}  local  Running -> Complete" in rest


def test_watch_once_looks_once(cli: Cli) -> None:
    job = cli.submit("--", "sleep", "300")
    until(lambda: "Running" in cli("watch", "--once"), "seen running")
    assert cli("watch", "--once") == ""
    assert job in cli("-q", "ls", "--no-refresh", "-s", "running")


# ---------------------------------------------------------------- rm, platforms


def test_rm_removes_results_and_record(cli: Cli) -> None:
    job = cli.submit("-c", "echo data > $TAO_RESULTS_ROOT/$TAO_JOB_ID/model")
    cli("wait", job)
    results = cli.folder / "state" / "local" / "results" / job
    assert (results / "model").exists()
    _, err = cli.both("rm", job, code=2)
    assert "--yes" in err
    assert cli("rm", "--yes", job).strip() == job
    assert not results.exists()
    cli("status", job, code=125)


def test_rm_can_keep_the_results(cli: Cli) -> None:
    job = cli.submit("--", "true")
    cli("wait", job)
    cli("rm", "-y", "--keep-results", job)
    assert (cli.folder / "state" / "local" / "results" / job).exists()
    assert cli("-q", "ls") == ""


def test_rm_refuses_open_jobs_and_parents_before_it_removes_anything(cli: Cli) -> None:
    parent = cli.submit("--", "true")
    cli("wait", parent)
    child = cli.submit("--parent", parent, "--", "sleep", "300")
    assert "parent of" in cli.both("rm", "-y", parent, code=125)[1]
    assert "tao-sdk cancel" in cli.both("rm", "-y", parent, child, code=125)[1]
    assert (cli.folder / "state" / "local" / "results" / parent).exists()
    cli("cancel", child)
    cli("rm", "-y", parent, child)
    assert cli("-q", "ls") == ""


def test_rm_older_than_spares_the_young_and_the_open(cli: Cli) -> None:
    ended = cli.submit("--", "true")
    cli("wait", ended)
    running = cli.submit("--", "sleep", "300")
    assert cli("rm", "-y", "--older-than", "1h") == ""
    assert cli("rm", "-y", "--older-than", "0s").split() == [ended]
    assert cli("-q", "ls").split() == [running]


def test_rm_of_a_job_that_was_refused(cli: Cli) -> None:
    cli.environment["TAO_LOCAL_GPUS"] = "1"
    first = cli("run", "-d", "--no-watch", "--gpus", "1", "--", "sleep", "300").strip()
    until(lambda: cli.state_of(first) == "Running", "the first job has the GPU")
    cli("run", "--no-watch", "--gpus", "1", "-o", "when_busy=refuse", "--", "true", code=125)
    cli("rm", "-y", "-")
    assert cli("-q", "ls").split() == [first]


def test_platforms_lists_options_without_contacting_anything(cli: Cli) -> None:
    out = cli("platforms")
    assert "local  (default)  tao_sdk.platforms.local.sdk.LocalSDK" in out
    assert re.search(r"^  when_busy +when all GPUs .* \[wait\]$", out, re.MULTILINE)
    cli.environment["TAO_PLATFORM"] = "virtualenv"
    assert "virtualenv  (default)" in cli("platforms")


def test_an_interrupted_wait_ends_with_130(cli: Cli) -> None:
    cli.submit("-c", "echo ready; sleep 300")
    process = cli.start("logs", "-f", "-", stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(2)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert cli.state_of("-") == "Running"
