"""One rank stages what several share: real processes, killed and stopped at bad moments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tao_sdk.runner import staging_lock
from tao_sdk.runner.staging_lock import staging_turn

DEADLINE = 60.0

# A rank: it stages in place, bit by bit, so that whoever goes on too early sees half a file. It
# does what the files `hold` and `fail` beside the data tell it, and prints what it read.
RANK = """
import os, sys, time
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.staging_lock import staging_turn

root, digest, rank, stale, wait = sys.argv[1:]
at = lambda name: os.path.join(root, name)
def say(text):
    with open(at("said"), "a") as file:
        file.write(f"{rank}: {text}\\n")

try:
    with staging_turn(at("turns"), digest, rank=int(rank), host="node", say=say,
                      wait_seconds=float(wait), stale_seconds=float(stale)) as turn:
        if turn.mine:
            with open(at("stagers"), "a") as file:
                file.write(f"{rank} {os.getpid()}\\n")
            with open(at("data"), "w") as file:
                for number in range(50):
                    file.write(f"{digest} {number}\\n")
                    file.flush()
                    time.sleep(0.002)
                    while number == 25 and os.path.exists(at("hold")):
                        time.sleep(0.01)
            if os.path.exists(at("fail")):
                raise RunnerError("s3://bucket/key is not there")
            turn.done({"files": 50})
    with open(at("data")) as file:
        print(turn.result, len(file.readlines()))
except RunnerError as error:
    sys.exit(str(error))
"""


class Ranks:
    """The ranks of one job, over one shared folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, count: int = 1, digest: str = "plan", stale: float = 60.0, wait: float = 100.0
    ) -> list[subprocess.Popen[str]]:
        started = []
        for _ in range(count):
            rank = str(len(self.processes))
            command = [sys.executable, "-c", RANK, str(self.root), digest, rank]
            process = subprocess.Popen(
                [*command, str(stale), str(wait)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.processes.append(process)
            started.append(process)
        return started

    def read(self, name: str) -> list[str]:
        path = self.root / name
        return path.read_text().splitlines() if path.exists() else []

    def await_stagers(self, count: int) -> int:
        """The process id of the newest stager, once it is in the middle of the file."""
        poll(lambda: len(self.read("stagers")) == count and len(self.read("data")) == 26)
        return int(self.read("stagers")[-1].split()[1])

    def await_waiting(self, count: int) -> None:
        poll(lambda: sum("waiting" in line for line in self.read("said")) == count)


def poll(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.01)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it read or complained of."""
    out, err = process.communicate(timeout=DEADLINE)
    return process.returncode, (out or err).strip()


WHOLE = (0, "{'files': 50} 50")


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path)
    yield ranks
    for process in ranks.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_one_of_many_stages_and_all_see_the_whole(ranks: Ranks) -> None:
    """Lesson A3: no rank goes on with half a file that another is still writing."""
    started = ranks.start(8)
    assert [finish(process) for process in started] == [WHOLE] * 8
    assert len(ranks.read("stagers")) == 1


# Every rank waits for the others, then grabs at one turn after the other.
GRAB = """
import sys, time
from tao_sdk.runner.staging_lock import _Turns
turns = _Turns(sys.argv[1], "plan", "rank")
print("ready", flush=True)
sys.stdin.readline()
print([number for number in range(1, 301) if turns.take(number)])
"""


def test_no_turn_has_two_holders(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GRAB, str(tmp_path)]
    pipe = subprocess.PIPE
    ranks = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "ready\n"
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("go\n")
            rank.stdin.flush()
        taken = [json.loads(rank.communicate(timeout=DEADLINE)[0]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    # A turn that has been succeeded before its holder looked round has none.
    numbers = [number for each in taken for number in each]
    assert len(numbers) == len(set(numbers)) > 0


def test_a_rank_that_comes_later_does_not_stage_again(ranks: Ranks) -> None:
    assert [finish(process) for process in ranks.start()] == [WHOLE]
    assert [finish(process) for process in ranks.start(3)] == [WHOLE] * 3
    assert len(ranks.read("stagers")) == 1


def test_another_plan_is_staged_again(ranks: Ranks) -> None:
    finish(*ranks.start())
    assert [finish(process) for process in ranks.start(3, digest="other")] == [WHOLE] * 3
    assert len(ranks.read("stagers")) == 2
    assert ranks.read("data")[0] == "other 0"
    finish(*ranks.start())
    assert ranks.read("data")[0] == "plan 0"


def test_a_killed_stager_is_succeeded_by_exactly_one(ranks: Ranks) -> None:
    """Lesson A2: what a killed attempt leaves is never taken for whole."""
    (ranks.root / "hold").touch()
    started = ranks.start(6, stale=4)
    victim = ranks.await_stagers(1)
    ranks.await_waiting(5)
    os.kill(victim, signal.SIGKILL)
    ranks.await_stagers(2)
    (ranks.root / "hold").unlink()
    outcomes = [finish(process) for process in started if process.pid != victim]
    assert outcomes == [WHOLE] * 5
    assert len(ranks.read("stagers")) == 2
    assert sum("taken over" in line for line in ranks.read("said")) >= 1


def test_the_next_attempt_takes_over_from_a_killed_one(ranks: Ranks) -> None:
    (ranks.root / "hold").touch()
    (first,) = ranks.start(stale=4)
    os.kill(ranks.await_stagers(1), signal.SIGKILL)
    finish(first)
    (ranks.root / "hold").unlink()
    assert [finish(process) for process in ranks.start(2, stale=4)] == [WHOLE] * 2
    assert len(ranks.read("stagers")) == 2


def test_a_failure_is_told_to_all_that_wait(ranks: Ranks) -> None:
    (ranks.root / "hold").touch()
    (ranks.root / "fail").touch()
    started = ranks.start(4)
    stager = ranks.await_stagers(1)
    ranks.await_waiting(3)
    (ranks.root / "hold").unlink()
    outcomes = {process.pid: finish(process) for process in started}
    assert outcomes.pop(stager) == (1, "s3://bucket/key is not there")
    rank = ranks.read("stagers")[0].split()[0]
    told = f"staging failed in rank {rank} on node: s3://bucket/key is not there"
    assert set(outcomes.values()) == {(1, told)}


def test_the_attempt_after_a_failed_one_tries_again(ranks: Ranks) -> None:
    (ranks.root / "fail").touch()
    assert finish(*ranks.start())[0] == 1
    (ranks.root / "fail").unlink()
    assert [finish(process) for process in ranks.start(3)] == [WHOLE] * 3
    assert len(ranks.read("stagers")) == 2


def test_a_stager_that_was_only_suspended_finds_itself_succeeded(ranks: Ranks) -> None:
    (ranks.root / "hold").touch()
    started = ranks.start(2, stale=4)
    slow = ranks.await_stagers(1)
    ranks.await_waiting(1)
    os.kill(slow, signal.SIGSTOP)
    ranks.await_stagers(2)
    os.kill(slow, signal.SIGCONT)
    (ranks.root / "hold").unlink()
    outcomes = {process.pid: finish(process) for process in started}
    code, told = outcomes.pop(slow)
    assert code == 1
    assert "another rank has taken over" in told
    assert list(outcomes.values()) == [WHOLE]


def test_waiting_ends_with_the_name_of_the_stager(ranks: Ranks) -> None:
    (ranks.root / "hold").touch()
    ranks.start()
    ranks.await_stagers(1)
    code, told = finish(*ranks.start(wait=0.2))
    assert code == 1
    assert "rank 0 on node" in told
    assert "TAO_STAGE_WAIT_SECONDS" in told


def take_turn(folder: Path, digest: str = "plan") -> dict[str, object]:
    with staging_turn(
        str(folder), digest, rank=0, host="node", wait_seconds=0, say=lambda _: None
    ) as turn:
        if turn.mine:
            turn.done({"by": digest})
    return turn.result


def test_the_state_of_past_turns_does_not_pile_up(tmp_path: Path) -> None:
    for number in range(20):
        assert take_turn(tmp_path, f"plan {number}") == {"by": f"plan {number}"}
    assert len(list(tmp_path.iterdir())) == 6


def test_a_rank_that_was_started_again_stages_again(tmp_path: Path) -> None:
    """What was staged before it started may be old; the other ranks share the new turn."""

    def is_mine(rank: int) -> bool:
        with staging_turn(
            str(tmp_path), "plan", rank=rank, host="node", wait_seconds=0, say=lambda _: None
        ) as turn:
            if turn.mine:
                turn.done({})
            return turn.mine

    assert [is_mine(rank) for rank in (0, 1, 2)] == [True, False, False]
    assert [is_mine(rank) for rank in (1, 0, 2)] == [True, False, False]


def test_only_our_own_messages_are_left_for_others(tmp_path: Path) -> None:
    def stage() -> None:
        with staging_turn(
            str(tmp_path), "plan", rank=0, host="node", wait_seconds=0, say=lambda _: None
        ):
            raise KeyError("hunter2")

    with pytest.raises(KeyError):
        stage()
    (outcome,) = tmp_path.glob("*.outcome")
    assert "KeyError" in outcome.read_text()
    assert "hunter2" not in outcome.read_text()


def test_a_turn_must_end_with_a_word(tmp_path: Path) -> None:
    turn = staging_turn(
        str(tmp_path), "plan", rank=0, host="node", wait_seconds=0, say=lambda _: None
    )
    with pytest.raises(RuntimeError, match="done"), turn:
        pass
    assert take_turn(tmp_path) == {"by": "plan"}


class TestPulse:
    """When a holder counts as gone, with clocks that cannot be trusted."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        clock = SimpleNamespace(now=0.0)
        fake = SimpleNamespace(monotonic=lambda: clock.now)
        monkeypatch.setattr(staging_lock, "time", fake)
        return clock

    @pytest.fixture
    def pulse(self, tmp_path: Path, clock: SimpleNamespace) -> staging_lock._Pulse:
        turns = staging_lock._Turns(str(tmp_path), "plan", "rank 0 on node")
        assert turns.take(1)
        return staging_lock._Pulse(turns, 60.0)

    def looks_until_stopped(self, pulse: staging_lock._Pulse, clock: SimpleNamespace) -> int:
        looks = 0
        while not pulse.has_stopped(1):
            clock.now += 1.0
            looks += 1
            assert looks < 1000
        return looks

    @pytest.mark.parametrize("skew", [-3600, 3600])
    def test_a_beating_holder_lives_whatever_its_clock_says(
        self, tmp_path: Path, pulse: staging_lock._Pulse, clock: SimpleNamespace, skew: int
    ) -> None:
        for second in range(200):
            if second % 3 == 0:
                now = time.time() + skew + second
                os.utime(tmp_path / "turn-1", (now, now))
            assert not pulse.has_stopped(1)
            clock.now += 1.0

    def test_one_that_died_long_ago_is_found_out_soon(
        self, tmp_path: Path, pulse: staging_lock._Pulse, clock: SimpleNamespace
    ) -> None:
        os.utime(tmp_path / "turn-1", (1_000, 1_000))
        assert self.looks_until_stopped(pulse, clock) == 10

    def test_one_that_died_with_a_fast_clock_is_found_out_too(
        self, tmp_path: Path, pulse: staging_lock._Pulse, clock: SimpleNamespace
    ) -> None:
        future = time.time() + 3600
        os.utime(tmp_path / "turn-1", (future, future))
        assert self.looks_until_stopped(pulse, clock) == 60

    def test_own_suspension_is_not_the_holders_silence(
        self, tmp_path: Path, pulse: staging_lock._Pulse, clock: SimpleNamespace
    ) -> None:
        os.utime(tmp_path / "turn-1", (1_000, 1_000))
        assert not pulse.has_stopped(1)
        clock.now += 10_000
        assert not pulse.has_stopped(1)
        os.utime(tmp_path / "turn-1")
        clock.now += 1.0
        assert not pulse.has_stopped(1)

    def test_nothing_is_left_of_asking_for_the_time(
        self, tmp_path: Path, pulse: staging_lock._Pulse, clock: SimpleNamespace
    ) -> None:
        os.utime(tmp_path / "turn-1", (1_000, 1_000))
        self.looks_until_stopped(pulse, clock)
        assert [path.name for path in tmp_path.iterdir()] == ["turn-1"]
