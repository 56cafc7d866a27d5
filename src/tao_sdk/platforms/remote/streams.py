"""Answers that are too long to be held: read section by section, as they come."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, cast

from tao_sdk.platforms.remote.framing import END, Call

_BLOCK = 1024 * 1024
_END_SECONDS = 10.0


class CutOffError(Exception):
    """The answer ended before it was whole."""


class AnswerStream:
    """An answer in the making; never more of it in memory than came at once."""

    def __init__(self, sent: Call, more: Callable[[], bytes]) -> None:
        """`more` gives the next bytes; none when there will be no more."""
        self._mark = sent.mark
        self._more = more
        self._ahead = b"\n"

    def next_section(self) -> tuple[str, str] | None:
        """Name and words of the next section; None after the last.

        What was not read of the present one is passed over; before the first one that is the
        noise of login scripts.
        """
        while self.read():
            pass
        while b"\n" not in self._ahead[len(self._mark) :]:
            self._fetch()
        head, _, self._ahead = self._ahead[len(self._mark) :].partition(b"\n")
        name, _, words = head.decode("utf-8", "replace").partition(" ")
        return None if name == END else (name, words)

    def read(self, limit: int = _BLOCK) -> bytes:
        """Some bytes of the present section, at most so many; none at its end."""
        while True:
            end = self._ahead.find(self._mark)
            # The last bytes may be the beginning of a mark.
            safe = end if end >= 0 else max(0, len(self._ahead) - len(self._mark) + 1)
            if safe or end == 0:
                break
            self._fetch()
        size = min(limit, safe)
        taken, self._ahead = self._ahead[:size], self._ahead[size:]
        return taken

    def _fetch(self) -> None:
        came = self._more()
        if not came:
            raise CutOffError("the connection was lost")
        self._ahead += came


class RunningProgram:
    """A started program whose answer is read as it comes."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        output: IO[bytes],
        said: IO[bytes],
        idle: float,
        *,
        own_group: bool,
    ) -> None:
        self._process = process
        self._own_group = own_group
        self._output = output
        self._said = said
        self._idle = idle
        self._is_over = False

    def read(self) -> bytes:
        """What has come by now; none at the end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            if not selector.select(self._idle):
                raise CutOffError(f"nothing came for {self._idle:g} s")
        came = os.read(self._output.fileno(), _BLOCK)
        self._is_over = not came
        return came

    def stop(self) -> int:
        """End it, if its answer has not ended; its exit code."""
        if not self._is_over:
            self._signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            return self._process.wait()

    def _signal(self, number: int) -> None:
        if self._own_group:
            # Also to what it has started, whether or not it still runs itself.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def complaint(self) -> str:
        self._said.seek(0)
        return self._said.read().decode("utf-8", "replace")


@contextlib.contextmanager
def started(
    words: Sequence[str],
    source: bytes,
    idle: float,
    env: Mapping[str, str] | None = None,
    *,
    own_group: bool = False,
) -> Iterator[RunningProgram]:
    """A program with that input, stopped at the end; silence of `idle` seconds is an error.

    With `own_group` whatever it has started is stopped with it; it has no terminal to ask at then.
    """
    # Files, not pipes: nobody is there to fill the one and to empty the other meanwhile.
    with tempfile.TemporaryFile() as sent, tempfile.TemporaryFile() as said:
        sent.write(source)
        sent.seek(0)
        process = subprocess.Popen(
            words,
            stdin=sent,
            stdout=subprocess.PIPE,
            stderr=said,
            env=env,
            start_new_session=own_group,
        )
        with cast("IO[bytes]", process.stdout) as output:
            running = RunningProgram(process, output, said, idle, own_group=own_group)
            try:
                yield running
            finally:
                running.stop()
