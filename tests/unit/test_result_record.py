"""The shim: one line of shell that every platform starts a job with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tao_sdk.result_record import SHIM, ResultRecord, first_failure

SHELLS = [
    shell
    for shell in (["dash"], ["bash"], ["bash", "--posix"], ["busybox", "sh"])
    if shutil.which(shell[0])
]


class Shim:
    def __init__(self, shell: list[str], root: Path) -> None:
        self.shell = shell
        self.root = root

    def start(self, command: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.shell, "-c", SHIM, "tao-shim", "bash", "-c", command],
            env={**os.environ, "TAO_RESULTS_ROOT": str(self.root), "TAO_JOB_ID": "j1", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def record(self, name: str = "tao_result.json") -> ResultRecord:
        record = ResultRecord.parse((self.root / "j1" / name).read_text(), "j1")
        assert record is not None
        return record


@pytest.fixture(params=SHELLS, ids=" ".join)
def shim(request: pytest.FixtureRequest, tmp_path: Path) -> Shim:
    return Shim(request.param, tmp_path)


@pytest.mark.parametrize(
    ("command", "code"),
    [("true", 0), ("exit 7", 7), ("no-such-program", 127), ("kill -9 $$", 137), ("exit 124", 124)],
)
def test_the_code_is_the_commands_own(shim: Shim, command: str, code: int) -> None:
    process = shim.start(command)
    process.communicate()
    assert process.returncode == code
    assert shim.record().exit_code == code


def test_input_reaches_the_command(shim: Shim) -> None:
    out, _ = shim.start("cat").communicate("hello\n")
    assert out == "hello\n"


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize(("on_term", "code"), [("", 143), ("trap 'exit 5' TERM;", 5)])
def test_a_signal_reaches_the_command_and_the_record_is_still_written(
    shim: Shim, group: bool, on_term: str, code: int
) -> None:
    """Lesson B6: SIGTERM is passed on, whether it hits the shim alone or the whole group."""
    env = {"TAO_GROUP_SIGNALS": "1"} if group else {}
    process = shim.start(f"{on_term} echo up; while :; do sleep 0.02; done", **env)
    assert process.stdout is not None
    process.stdout.readline()
    (os.killpg if group else os.kill)(process.pid, signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == code
    assert shim.record().exit_code == code


def test_a_group_signal_arrives_once(shim: Shim, tmp_path: Path) -> None:
    """A trainer may take a second SIGTERM for an order to stop saving."""
    script = (
        "n=0; i=0; trap 'n=$((n+1))' TERM; echo up; "
        "while [ $i -lt 25 ]; do sleep 0.02; i=$((i+1)); done; echo got $n"
    )
    process = shim.start(script, TAO_GROUP_SIGNALS="1")
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert out == "got 1\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGURG])
def test_a_signal_to_the_task_alone_reaches_its_whole_group_once(
    shim: Shim, how: signal.Signals
) -> None:
    """As Slurm does it by control groups: a shell of the user's may stand between."""
    program = (
        "trap 'echo told' TERM; echo up; i=0; while [ $i -lt 25 ]; do sleep 0.02; i=$((i+1)); done"
    )
    process = shim.start(
        'trap : TERM; sh -c "$PROGRAM"; exit 5', TAO_GROUP_SIGNALS="task", PROGRAM=program
    )
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(2):
        os.kill(process.pid, how)
    out, _ = process.communicate(timeout=30)
    assert out == "told\n"
    assert shim.record().exit_code == 5


def test_other_ranks_have_records_of_their_own(shim: Shim) -> None:
    shim.start("exit 3", NODE_RANK="2", TAO_ATTEMPT="4").communicate()
    record = shim.record("tao_result.2.json")
    assert (record.rank, record.attempt, record.exit_code) == (2, 4, 3)
    assert sorted(p.name for p in (shim.root / "j1").iterdir()) == ["tao_result.2.json"]


def rich_record(code: int) -> str:
    """A command that leaves a record of its own, as the runner does."""
    record = {"version": 1, "job_id": "j1", "exit_code": code, "started_at": "", "ended_at": ""}
    text = json.dumps({**record, "staged": {"files": 3}})
    folder, file = '"${TAO_RUNNER_RECORD%/*}"', f'"$TAO_RUNNER_RECORD.{code}"'
    return f"mkdir -p {folder}; echo '{text}' > {file}; "


@pytest.mark.parametrize("rank", ["0", "2"])
@pytest.mark.parametrize("group", ["", "1"])
@pytest.mark.parametrize("code", [0, 7, 143])
def test_a_richer_record_of_the_command_is_kept(
    shim: Shim, code: int, group: str, rank: str
) -> None:
    env = {"TAO_GROUP_SIGNALS": group, "NODE_RANK": rank}
    process = shim.start(rich_record(code) + f"exit {code}", **env)
    process.communicate()
    assert process.returncode == code
    [path] = (shim.root / "j1").iterdir()
    assert path.name == ("tao_result.json" if rank == "0" else "tao_result.2.json")
    assert json.loads(path.read_text())["staged"] == {"files": 3}


def test_a_richer_record_is_not_believed_when_the_command_was_killed_after_it(shim: Shim) -> None:
    shim.start(rich_record(0) + "kill -9 $$").communicate()
    [path] = (shim.root / "j1").iterdir()
    assert shim.record().exit_code == 137
    assert "staged" not in path.read_text()


def test_a_richer_record_of_an_earlier_attempt_is_not_taken(shim: Shim) -> None:
    """In a container the shim is always process 1: its number does not tell attempts apart."""
    stale = 'touch "$TAO_RESULTS_ROOT/j1/tao_result.json.$$.137"; exec "$@"'
    (shim.root / "j1").mkdir()
    shim.shell = ["sh", "-c", stale, "earlier-attempt", *shim.shell]
    shim.start("kill -9 $$").communicate()
    assert shim.record().exit_code == 137


@pytest.mark.parametrize("root", ["with space", "st*r", "quo'te"])
def test_the_folder_may_have_any_name(shim: Shim, root: str) -> None:
    shim.root = shim.root / root
    shim.start(rich_record(4) + "exit 4").communicate()
    [path] = (shim.root / "j1").iterdir()
    assert json.loads(path.read_text())["staged"] == {"files": 3}


def test_without_a_results_root_nothing_is_written(shim: Shim) -> None:
    process = shim.start("exit 2", TAO_RESULTS_ROOT="")
    process.communicate()
    assert process.returncode == 2
    assert list(shim.root.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        json.dumps({"version": 1, "job_id": "other", "exit_code": 0}),
        json.dumps({"version": 99, "job_id": "j1", "exit_code": 0}),
        json.dumps(
            {"version": 1, "job_id": "j1", "exit_code": "x", "started_at": "", "ended_at": ""}
        ),
    ],
)
def test_what_is_not_a_record_of_this_job_is_none(text: str) -> None:
    assert ResultRecord.parse(text, "j1") is None


def test_first_failure_is_the_earliest() -> None:
    def record(rank: int, code: int, ended: str) -> ResultRecord:
        return ResultRecord("j", code, "2026-01-01T00:00:00Z", ended, rank=rank)

    ranks = [record(0, 143, "2026-01-01T00:00:05Z"), record(1, 9, "2026-01-01T00:00:02Z")]
    found = first_failure([*ranks, record(2, 0, "2026-01-01T00:00:01Z")])
    assert found is not None
    assert found.rank == 1
    assert first_failure([record(0, 0, "2026-01-01T00:00:05Z")]) is None


def test_a_rank_that_was_stopped_is_not_the_first_of_its_second() -> None:
    when = "2026-01-01T00:00:05Z"
    ranks = [ResultRecord("j", code, when, when, rank=rank) for rank, code in enumerate([143, 3])]
    found = first_failure(ranks)
    assert found is not None
    assert found.rank == 1


def test_variables_of_the_job_are_its_own(shim: Shim) -> None:
    """However short their names."""
    names = ["d", "r", "f", "s", "g", "p", "n", "k", "o", "c"]
    process = shim.start("env", **{name: f"mine-{name}" for name in names})
    out, _ = process.communicate()
    assert {f"{name}=mine-{name}" for name in names} <= set(out.splitlines())


def test_a_signal_while_the_record_is_written_changes_nothing(shim: Shim, tmp_path: Path) -> None:
    """Bash gave up where one came within `$(date)`, and there was no record."""
    programs, begun = tmp_path / "bin", tmp_path / "begun"
    programs.mkdir()
    date = programs / "date"
    # The shim asks for the time before it runs the command, and after.
    date.write_text(
        f'#!/bin/sh\n[ ! -e "{begun}" ] || kill -TERM "$PPID"\n: > "{begun}"\n'
        f'exec {shutil.which("date")} "$@"\n'
    )
    date.chmod(0o755)
    process = shim.start("exit 3", PATH=f"{programs}:{os.environ['PATH']}")
    process.communicate(timeout=30)
    assert process.returncode == 3
    assert shim.record().exit_code == 3
