"""The command and its signals, with real processes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.process_identity import start_time
from tao_sdk.result_record import ResultRecord, shim_argv

# A runner with nothing to stage and nothing to deliver.
RUNNER = """
import json, os, sys
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.process import SignalWatch, StoppedError, run_command
command, cwd, grace, before, outcome_file = sys.argv[1:]
if command.startswith("@"):
    command = open(command[1:]).read()
signals = SignalWatch()
if before:
    print("ready", flush=True)
    sys.stdin.readline()
try:
    env = dict(os.environ)
    outcome = run_command(command, env, cwd, signals=signals, grace_seconds=float(grace))
except StoppedError as error:
    print("stopped:", error, flush=True)
    os._exit(error.exit_code)
except RunnerError as error:
    print("error:", error, flush=True)
    os._exit(1)
with open(outcome_file, "w") as file:
    json.dump(outcome._asdict(), file)
os._exit(outcome.exit_code)
"""


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within 30 seconds: {what}")


def gone(pid: int) -> bool:
    return start_time(pid) is None


def sleeps(pid: int) -> bool:
    """Does the process wait for something?"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


class Lab:
    """Starts runners, and leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self,
        command: str,
        *,
        grace: float = 30,
        cwd: str = "",
        before: bool = False,
        wrap: Callable[[list[str]], list[str]] = list,
        **options: Any,
    ) -> subprocess.Popen[str]:
        words = [command, cwd, str(grace), "before" if before else "", str(self.outcome_file)]
        process = subprocess.Popen(
            wrap([sys.executable, "-c", RUNNER, *words]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            start_new_session=True,
            **options,
        )
        self.processes.append(process)
        return process

    def run(self, command: str, **options: Any) -> subprocess.Popen[str]:
        process = self.start(command, **options)
        process.communicate(timeout=60)
        return process

    @property
    def outcome_file(self) -> Path:
        return self.folder / "outcome.json"

    @property
    def outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.outcome_file.read_text())
        return found

    def pid(self, name: str) -> int:
        """A process id that the command wrote to a file."""
        path = self.folder / name
        text: str = until(lambda: path.exists() and path.read_text().strip(), f"{name} is written")
        return int(text)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=30)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class TestExitCodes:
    @pytest.mark.parametrize(
        ("command", "code", "number"),
        [
            ("true", 0, 0),
            ("exit 7", 7, 0),
            ("exit 255", 255, 0),
            ("no-such-program 2>/dev/null", 127, 0),
            ("kill -KILL $$", 137, signal.SIGKILL),
            ("kill -TERM $$", 143, signal.SIGTERM),
            ("kill -SEGV $$", 139, signal.SIGSEGV),
            ("bash -c 'kill -KILL $$'; exit $?", 137, 0),
        ],
    )
    def test_are_exact(self, lab: Lab, command: str, code: int, number: int) -> None:
        """Lesson B5: 128+n for a signal, so that 137 is recognised as what it is."""
        assert lab.run(command).returncode == code
        assert (lab.outcome["exit_code"], lab.outcome["signal"]) == (code, number)
        assert lab.outcome["started_at"] <= lab.outcome["ended_at"]

    def test_a_command_that_cannot_start_is_an_error_with_a_reason(self, lab: Lab) -> None:
        (lab.folder / "long").write_text("true " + "x" * (1 << 17))
        process = lab.start("@long")
        assert "131,077 bytes) cannot be started" in line(process)
        process = lab.start("true", cwd="/no/such/folder")
        assert "in /no/such/folder: No such file or directory" in line(process)
        assert process.wait(30) == 1


class TestSurroundings:
    def test_input_output_folder_and_environment_are_the_commands(self, lab: Lab) -> None:
        (lab.folder / "work").mkdir()
        env = {**os.environ, "ODD": "a'b\n$c"}
        process = lab.start(
            'cat; pwd; printf %s "$ODD"; echo to stderr >&2; exit 3',
            cwd=str(lab.folder / "work"),
            env=env,
            stderr=subprocess.PIPE,
        )
        out, err = process.communicate("typed\n", timeout=30)
        assert out == f"typed\n{lab.folder}/work\na'b\n$c"
        assert err == "to stderr\n"
        assert process.returncode == 3

    def test_files_that_were_handed_down_reach_the_command(self, lab: Lab) -> None:
        """The leases of a job's GPUs are such files."""
        read_end, write_end = os.pipe()
        process = lab.run(f"echo held >&{write_end}", pass_fds=(write_end,))
        os.close(write_end)
        assert process.returncode == 0
        with os.fdopen(read_end) as pipe:
            assert pipe.read() == "held\n"

    def test_it_ignores_and_blocks_no_signal(self, lab: Lab) -> None:
        def hostile_parent() -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
            signal.signal(signal.SIGINT, signal.SIG_IGN)

        process = lab.start(
            "exec grep -E 'SigBlk|SigIgn' /proc/self/status", preexec_fn=hostile_parent
        )
        out, _ = process.communicate(timeout=30)
        masks = {int(entry.split()[1], 16) & 0x7FFFFFFF for entry in out.splitlines()}
        assert masks == {0}  # but for numbers 32 and 33, which the C library keeps for itself

    def test_it_leads_a_group_of_its_own_in_the_runners_session(self, lab: Lab) -> None:
        process = lab.start("ps -o pid=,pgid=,sid= -p $$; true")
        pid, group, session = map(int, line(process).split())
        assert pid == group
        assert session == process.pid


COUNTING = (
    "n=0; trap 'n=$((n+1)); echo got $n' {signals}; echo up; "
    "while [ ! -e go ]; do sleep 0.02; done; echo in all $n; exit 9"
)


class TestSignals:
    @pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
    def test_each_is_passed_on_once(self, lab: Lab, name: str) -> None:
        """Lesson B6: the command hears of it, though only the runner was told."""
        process = lab.start(COUNTING.format(signals=name))
        assert line(process) == "up"
        # The whole group of the runner, as a platform does it: the command must not get two.
        os.killpg(process.pid, getattr(signal, f"SIG{name}"))
        assert line(process) == "got 1"
        (lab.folder / "go").touch()
        assert line(process) == "in all 1"
        assert process.wait(30) == 9

    def test_a_second_order_is_passed_on_and_takes_no_time_away(self, lab: Lab) -> None:
        process = lab.start(COUNTING.format(signals="TERM"), grace=600)
        assert line(process) == "up"
        for count in (1, 2, 3):
            process.terminate()
            assert line(process) == f"got {count}"
        (lab.folder / "go").touch()
        assert line(process) == "in all 3"
        assert process.wait(30) == 9

    def test_everything_that_the_command_started_is_told(self, lab: Lab) -> None:
        """Lesson B6: no child survives as an orphan."""
        process = lab.start("(echo $BASHPID > child; exec sleep 600) & wait; true")
        child = lab.pid("child")
        process.terminate()
        assert process.wait(30) == 143
        assert gone(child)

    def test_a_trainer_may_save_though_the_shell_around_it_has_ended(self, lab: Lab) -> None:
        """A shell dies of SIGTERM at once; what it ran has the rest of the grace period."""
        trainer = (
            "(trap 'while [ ! -e go ]; do sleep 0.02; done; echo saved > ckpt; exit' TERM; "
            "echo up; while :; do sleep 0.02; done); true"
        )
        process = lab.start(f"echo $$ > shell; {trainer}")
        assert line(process) == "up"
        process.terminate()
        until(lambda: gone(lab.pid("shell")), "the shell is gone")
        (lab.folder / "go").touch()
        assert process.wait(30) == 143
        assert (lab.folder / "ckpt").read_text() == "saved\n"

    def test_after_the_grace_period_it_is_killed(self, lab: Lab) -> None:
        command = (
            "trap '' TERM; (echo $BASHPID > child; exec sleep 600) & "
            "echo up; while :; do sleep 0.02; done"
        )
        process = lab.start(command, grace=0.2)
        assert line(process) == "up"
        child = lab.pid("child")
        process.terminate()
        assert process.wait(30) == 137
        assert lab.outcome["signal"] == signal.SIGKILL
        assert gone(child)

    @pytest.mark.parametrize(
        "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
    )
    def test_an_order_before_the_start_is_not_lost(self, lab: Lab, number: signal.Signals) -> None:
        process = lab.start("touch started", before=True)
        assert line(process) == "ready"
        process.send_signal(number)
        process.communicate("go on\n", timeout=30)
        assert process.returncode == 128 + number
        assert not (lab.folder / "started").exists()

    def test_other_signals_before_the_start_do_not_hurt_the_command(self, lab: Lab) -> None:
        """Nobody was there to be told; a fresh process would die of them."""
        process = lab.start("echo fine; exit 4", before=True)
        assert line(process) == "ready"
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate("go on\n", timeout=30)
        assert (out, process.returncode) == ("fine\n", 4)

    def test_nohup_is_respected(self, lab: Lab) -> None:
        process = lab.start(
            "echo up; while [ ! -e go ]; do sleep 0.02; done; exit 6",
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        assert line(process) == "up"
        process.send_signal(signal.SIGHUP)
        (lab.folder / "go").touch()
        assert process.wait(30) == 6

    def test_at_any_moment(self, lab: Lab) -> None:
        """From before the runner's first line until long after the command has begun."""
        chance = random.Random(6)
        for attempt in range(12):
            name = f"pid{attempt}"
            process = lab.start(f"echo $$ > {name}; exec sleep 600")
            time.sleep(chance.random() * 0.15)
            process.terminate()
            # -15: the interpreter itself was not up yet, and so nothing was started.
            assert process.wait(30) in (143, -signal.SIGTERM)
            path = lab.folder / name
            started = path.read_text().strip() if path.exists() else ""
            assert not started or gone(int(started))


def test_a_command_reads_from_a_terminal(tmp_path: Path) -> None:
    """And the terminal is the runner's again afterwards."""
    program = RUNNER.replace(
        "os._exit(outcome",
        "print('ours:', os.tcgetpgrp(0) == os.getpgrp(), 'the end', flush=True)\nos._exit(outcome",
    )
    words = ["read -r said; echo got:$said; exit 3", "", "5", "", str(tmp_path / "outcome")]
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdin=inner,
        stdout=inner,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    heard = b""
    try:
        os.write(terminal, b"hello\n")
        deadline = time.monotonic() + 30
        while b"the end" not in heard and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                heard += os.read(terminal, 4096)
    finally:
        if b"the end" not in heard:
            process.kill()
        code = process.wait(30)
        os.close(inner)
        os.close(terminal)
    assert b"got:hello" in heard
    assert b"ours: True" in heard
    assert code == 3


class TestLeftovers:
    def test_what_a_command_leaves_behind_is_ended(self, lab: Lab) -> None:
        process = lab.run("sleep 600 & echo $! > child; exit 3")
        assert process.returncode == 3
        assert gone(lab.pid("child"))

    def test_even_if_it_does_not_want_to(self, lab: Lab) -> None:
        stubborn = "(trap '' TERM; echo $BASHPID > child; while :; do sleep 0.02; done) &"
        process = lab.run(f"{stubborn} while [ ! -e child ]; do sleep 0.01; done", grace=0.2)
        assert process.returncode == 0
        assert gone(lab.pid("child"))

    def test_a_killed_runner_takes_the_command_with_it(self, lab: Lab) -> None:
        process = lab.start("sleep 600 & echo $! > child; echo $$ > shell; wait; true")
        pids = [lab.pid("child"), lab.pid("shell")]
        assert not any(map(gone, pids))
        # The command may be quicker than the runner's word to the guard that there is one.
        until(lambda: sleeps(process.pid), "the runner waits for the command")
        os.killpg(process.pid, signal.SIGKILL)
        until(lambda: all(map(gone, pids)), "the command is gone")

    def test_the_guard_stays_while_it_is_needed_and_no_longer(self, lab: Lab) -> None:
        process = lab.start(COUNTING.format(signals="TERM"))
        assert line(process) == "up"
        found = subprocess.run(
            ["pgrep", "-s", str(process.pid), "-f", "tao-guard"],
            capture_output=True,
            text=True,
            check=True,
        )
        [guard] = map(int, found.stdout.split())
        os.kill(guard, signal.SIGTERM)  # as a platform does that signals every process
        process.terminate()
        assert line(process) == "got 1"
        assert not gone(guard)
        (lab.folder / "go").touch()
        assert process.wait(30) == 9
        assert gone(guard)


class TestUnderTheShim:
    @pytest.mark.parametrize("group", [True, False])
    def test_one_signal_one_record(self, lab: Lab, group: bool) -> None:
        """Platforms signal the whole group of the shim, or the shim alone."""
        env = {**os.environ, "TAO_RESULTS_ROOT": str(lab.folder), "TAO_JOB_ID": "j1"}
        env["TAO_GROUP_SIGNALS"] = "1" if group else ""
        process = lab.start(COUNTING.format(signals="TERM"), wrap=shim_argv, env=env)
        assert line(process) == "up"
        (os.killpg if group else os.kill)(process.pid, signal.SIGTERM)
        assert line(process) == "got 1"
        (lab.folder / "go").touch()
        assert line(process) == "in all 1"
        assert process.wait(30) == 9
        record = ResultRecord.parse((lab.folder / "j1/tao_result.json").read_text(), "j1")
        assert record is not None
        assert record.exit_code == 9


ATTENDING = """
import math, os, sys, threading, time
from tao_sdk.runner.process import SignalWatch, StoppedError
signals = SignalWatch()
try:
    print(signals.attend(lambda: 6 * 7))
    try:
        signals.attend(lambda: {}["missing"])
    except KeyError as error:
        print(repr(error))
    limit = signals.time_limit(5)
    print(limit() == math.inf, flush=True)
    signals.attend(threading.Event().wait)
except StoppedError as error:
    began = time.monotonic()
    print(error, error.exit_code)
    print(began - 5 < limit() < began + 5 < signals.time_limit(5)() < began + 60, flush=True)
    os._exit(error.exit_code)
"""


def test_work_is_watched_over(lab: Lab) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ATTENDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    lab.processes.append(process)
    assert [line(process) for _ in range(3)] == ["42", "KeyError('missing')", "True"]
    process.send_signal(signal.SIGUSR1)  # not an order to stop
    process.send_signal(signal.SIGTERM)
    assert line(process) == "stopped by SIGTERM 143"
    assert line(process) == "True"
    assert process.wait(30) == 143
