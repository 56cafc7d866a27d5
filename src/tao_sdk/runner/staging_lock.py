"""One rank stages, the others that see the same folder wait for it.

Nobody has to know whether ranks share a file system: whoever shares the folder shares the turn.
Turns are numbered. Turn N belongs to whoever creates the file `turn-N`, which a file system (NFS
and Lustre, too) lets only one do; its holder touches it while it works, and in the end writes
`turn-N.outcome`. After a turn that an earlier attempt lost, that was for another plan, or whose
holder fell silent, turn N+1 is taken: the same race, with one winner again. A holder that was
only slow finds that it has been succeeded.

A rank uses a turn once, and leaves `turn-N.used-RANK` to say so. One that finds its own note was
started again (a container can be, within one attempt): what was staged before it started may be
old, so it takes the next turn and looks anew. Ranks of the new start then share that one.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .errors import RunnerError
from .notes import read_note, write_note

_TURN = re.compile(r"turn-(\d+)(?:\.outcome|\.used-\d+)?")


class StagingTurn:
    """What a rank has to do: stage, if the turn is `mine`, or else use the `result`."""

    def __init__(self, turns: _Turns, number: int, result: dict[str, Any] | None) -> None:
        self.mine = result is None
        self.is_done = not self.mine
        self.result = result or {}
        """What the stager gave to `done`."""
        self._turns = turns
        self._number = number

    def check(self) -> None:
        """Raise if another rank took over, because this one was silent for too long."""
        if self._turns.last() > self._number:
            raise RunnerError(
                "another rank has taken over the staging, as this one was silent: was it "
                "suspended, or is the file system stuck?"
            )

    def done(self, info: dict[str, Any]) -> None:
        """Everything is in place: let the others go on."""
        self.check()
        self._turns.end(self._number, {"info": info})
        self.result = info
        self.is_done = True


@contextmanager
def staging_turn(
    folder: str,
    digest: str,
    *,
    rank: int,
    host: str,
    attempt: int = 1,
    wait_seconds: float,
    say: Callable[[str], None],
    stale_seconds: float = 60.0,
) -> Iterator[StagingTurn]:
    """The turn to stage what `digest` stands for, or what the stager said when it was done.

    The digest must be the same for all ranks. A failure of the stager is raised by every rank
    that waits for it. What was staged before is not staged again, except for a rank that was
    started again. Nobody waits for an earlier attempt, whose processes are gone.
    """
    turns = _Turns(folder, digest, f"rank {rank} on {host}", attempt, rank)
    number, result = _take_or_await(turns, wait_seconds, stale_seconds, say)
    turn = StagingTurn(turns, number, result)
    if not turn.mine:
        yield turn
        return
    stop = threading.Event()
    beats = (turns.path(number), stale_seconds / 20, stop)
    heart = threading.Thread(target=_beat, args=beats, daemon=True)
    heart.start()
    try:
        yield turn
        if not turn.is_done:
            raise RuntimeError("done() comes before the end")
    except BaseException as error:
        if not turn.is_done:
            # Only our own messages are known to hold no secret.
            told = str(error) if isinstance(error, RunnerError) else type(error).__name__
            with suppress(OSError):  # the disk may be full; then the others find us silent
                turns.end(number, {"error": told})
        raise
    finally:
        stop.set()
        heart.join()


def _take_or_await(
    turns: _Turns, wait_seconds: float, stale_seconds: float, say: Callable[[str], None]
) -> tuple[int, dict[str, Any] | None]:
    """The number of a turn that is now ours and None, or another's and what it said."""
    deadline = time.monotonic() + wait_seconds
    pulse = _Pulse(turns, stale_seconds)
    number = turns.last()
    # A failure that is here already is an earlier attempt's: this one tries again.
    old_failure = number if "error" in turns.outcome(number) else 0
    pause, told = 0.02, -1
    while True:
        outcome = turns.outcome(number)
        if turns.is_for_us(outcome) and "info" in outcome and turns.use(number):
            return number, outcome["info"]
        if turns.is_for_us(outcome) and "error" in outcome and number != old_failure:
            raise RunnerError(f"staging failed in {outcome['holder']}: {outcome['error']}")
        left_over = not outcome and turns.is_left_over(number)
        if number == 0 or outcome or left_over or pulse.has_stopped(number):
            if number and not outcome and not left_over:
                say(f"{turns.holder(number)} fell silent while it staged; its turn is taken over")
            number += 1
            if turns.take(number):
                turns.use(number)
                return number, None
        if time.monotonic() >= deadline:
            raise RunnerError(
                f"gave up after {wait_seconds:.0f} s of waiting for {turns.holder(number)}, which "
                "stages the inputs: see its log, or raise TAO_STAGE_WAIT_SECONDS"
            )
        if told != number:
            say(f"waiting for {turns.holder(number)}, which stages the inputs")
            told = number
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0, stale_seconds / 20)
        # Never back: another host's listing may be old.
        number = max(number, turns.last())


class _Turns:
    """The files by which ranks agree."""

    def __init__(
        self, folder: str, digest: str, holder: str, attempt: int = 1, rank: int = 0
    ) -> None:
        self.folder = folder
        self._rank = rank
        self._digest = digest
        self._holder = holder
        self._attempt = attempt
        os.makedirs(folder, exist_ok=True)

    def path(self, number: int) -> str:
        return os.path.join(self.folder, f"turn-{number}")

    def last(self) -> int:
        return max(self._numbers(), default=0)

    def take(self, number: int) -> bool:
        """Whether the turn is now ours: one rank can create the file."""
        try:
            with open(self.path(number), "x", encoding="utf-8") as file:
                json.dump({"holder": self._holder, "attempt": self._attempt}, file)
        except FileExistsError:
            return False
        numbers = self._numbers()
        if max(numbers) > number:
            return False  # we looked long ago; this turn is over, and was swept away
        # The last outcome stays, for those who still wait for it.
        for name in os.listdir(self.folder):
            match = _TURN.fullmatch(name)
            if match and int(match.group(1)) < number - 1:
                with suppress(FileNotFoundError):
                    os.remove(os.path.join(self.folder, name))
        return True

    def use(self, number: int) -> bool:
        """Note that this rank uses the turn. Whether it is the first time."""
        try:
            with open(f"{self.path(number)}.used-{self._rank}", "x"):
                return True
        except FileExistsError:
            return False

    def end(self, number: int, outcome: dict[str, Any]) -> None:
        told = {"holder": self._holder, "digest": self._digest, **outcome}
        write_note(self.path(number) + ".outcome", told)

    def outcome(self, number: int) -> dict[str, Any]:
        """What the turn led to; empty until then."""
        return read_note(self.path(number) + ".outcome")

    def is_for_us(self, outcome: dict[str, Any]) -> bool:
        return outcome.get("digest") == self._digest

    def is_left_over(self, number: int) -> bool:
        """Was it begun by an attempt that has ended? A file that is just being made was not."""
        begun = read_note(self.path(number)).get("attempt", self._attempt)
        return type(begun) is int and begun < self._attempt

    def holder(self, number: int) -> str:
        return str(read_note(self.path(number)).get("holder", "another rank"))

    def _numbers(self) -> set[int]:
        matches = map(_TURN.fullmatch, os.listdir(self.folder))
        return {int(match.group(1)) for match in matches if match}


def _beat(path: str, interval: float, stop: threading.Event) -> None:
    while not stop.wait(interval):
        with suppress(OSError):  # a hiccup of the file system: the next beat will do
            os.utime(path)


class _Pulse:
    """Watches whether the holder of a turn still touches its file.

    Clocks of hosts differ, so the change of its time counts, seen for long enough. If by the file
    system's own clock it is old as well, a shorter look will do.
    """

    def __init__(self, turns: _Turns, stale_seconds: float) -> None:
        self._turns = turns
        self._stale = stale_seconds
        self._last_beat: tuple[int, float] = (0, 0.0)
        self._last_look = time.monotonic()
        self._unchanged = 0.0

    def has_stopped(self, number: int) -> bool:
        now = time.monotonic()
        # Time in which we were suspended ourselves says nothing: the holder may have been, too.
        since = min(now - self._last_look, self._stale / 10)
        self._last_look = now
        beat = (number, self._time_of_beat(number))
        if beat != self._last_beat:
            self._last_beat, self._unchanged = beat, 0.0
            return False
        self._unchanged += since
        if self._unchanged < self._stale / 6:
            return False
        return self._unchanged >= self._stale or self._file_system_time() - beat[1] > self._stale

    def _time_of_beat(self, number: int) -> float:
        try:
            # NFS asks its server when a file is opened, not each time it is looked at.
            with open(self._turns.path(number), "rb") as file:
                return os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return 0.0

    def _file_system_time(self) -> float:
        path = os.path.join(self._turns.folder, f"clock-{os.getpid()}-{os.urandom(8).hex()}")
        with open(path, "x"):
            now = os.stat(path).st_mtime
        os.remove(path)
        return now
