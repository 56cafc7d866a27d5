"""Long answers, read section by section as they come."""

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
    """An answer that is still coming; holds only the last piece in memory."""

    def __init__(self, sent: Call, more: Callable[[], bytes]) -> None:
        """`more` returns the next bytes; empty at the end."""
        self._mark = sent.mark
        self._more = more
        self._ahead = b"\n"

    def next_section(self) -> tuple[str, str] | None:
        """Name and words of the next section; None after the last.

        Skips what was not read of the present one; before the first, output of login scripts.
        """
        while self.read():
            pass
        while b"\n" not in self._ahead[len(self._mark) :]:
            self._fetch()
        head, _, self._ahead = self._ahead[len(self._mark) :].partition(b"\n")
        name, _, words = head.decode("utf-8", "replace").partition(" ")
        return None if name == END else (name, words)

    def read(self, limit: int = _BLOCK) -> bytes:
        """Some bytes of the present section, at most `limit`; empty at its end."""
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
        piece = self._more()
        if not piece:
            raise CutOffError("the connection was lost")
        self._ahead += piece


class RunningProgram:
    """A started program whose answer is read as it comes."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        output: IO[bytes],
        stderr: IO[bytes],
        idle: float,
        *,
        own_group: bool,
    ) -> None:
        self._process = process
        self._own_group = own_group
        self._output = output
        self._stderr = stderr
        self._idle = idle
        self._is_over = False

    def read(self) -> bytes:
        """The next bytes; empty at the end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            if not selector.select(self._idle):
                raise CutOffError(f"no answer for {self._idle:g} s")
        piece = os.read(self._output.fileno(), _BLOCK)
        self._is_over = not piece
        return piece

    def stop(self) -> int:
        """Stop it unless its answer is complete; its exit code."""
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
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")


@contextlib.contextmanager
def started(
    words: Sequence[str],
    source: bytes,
    idle: float,
    env: Mapping[str, str] | None = None,
    *,
    own_group: bool = False,
) -> Iterator[RunningProgram]:
    """Run a program with that input; stopped at the end. `idle` seconds of silence are an error.

    With `own_group` its children are stopped with it, and it has no terminal.
    """
    # Files, because no thread would fill and drain pipes meanwhile.
    with tempfile.TemporaryFile() as sent, tempfile.TemporaryFile() as stderr:
        sent.write(source)
        sent.seek(0)
        process = subprocess.Popen(
            words,
            stdin=sent,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=env,
            start_new_session=own_group,
        )
        with cast("IO[bytes]", process.stdout) as output:
            running = RunningProgram(process, output, stderr, idle, own_group=own_group)
            try:
                yield running
            finally:
                running.stop()
