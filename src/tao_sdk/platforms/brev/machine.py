"""One instance, and programs that run on it.

`brev exec` is ssh with a command as an argument, and without input. So a program is the argument,
with a small public input of it; a large or secret input is copied there first, as a private file.
A program must be harmless to repeat, because `brev exec` repeats what has failed.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.brev.client import BrevClient, RefusedError
from tao_sdk.platforms.remote.framing import Call, Programs, Section
from tao_sdk.platforms.remote.streams import AnswerStream, CutOffError

PROGRAMS = Programs(Path(__file__).parent / "programs")
BASE = ".tao-sdk"
"""Our folder on an instance, in the home of its user."""

_SECONDS = 60.0
# One argument of a program has at most 128 KiB, quoting and all.
_LARGEST_INLINE = 40_000
# Longer than any copy takes, repetitions included.
_SENT_SECONDS = 3600.0
# Every program may run twice, so one without an answer is sent again, after these delays.
_PAUSES = (0.2, 0.5, 1.0)


class Machine:
    """An instance that is running."""

    def __init__(self, cli: BrevClient, name: str, outgoing: Path) -> None:
        """`outgoing` is a private folder for files while they are copied."""
        self._cli = cli
        self.name = name
        self._outgoing = outgoing

    def run(
        self,
        program: str,
        variables: Mapping[str, str] | None = None,
        payload: bytes = b"",
        *,
        seconds: float = _SECONDS,
    ) -> list[Section]:
        """Run a program of ours; its answer in sections.

        `BackendUnreachableError` means that no whole answer came. The program may have run.
        """
        place = self._place_for(payload)
        for pause in (*_PAUSES, None):
            sent = PROGRAMS.call((program, variables or {}))
            command = _command(sent, payload, place)
            output = self._cli.execute(self.name, command, seconds, f"exec {program}")
            sections = sent.sections(output.out)
            if sections is not None:
                return sections
            if pause is not None:
                time.sleep(pause)
        # A part of an answer may quote a job's log, and is no error message.
        output = output._replace(out=b"") if sent.mark in output.out else output
        raise BackendUnreachableError(f"instance {self.name}: {output.last_line}")

    @contextlib.contextmanager
    def stream(
        self, program: str, variables: Mapping[str, str] | None = None, payload: bytes = b""
    ) -> Iterator[AnswerStream]:
        """Run a program of ours whose answer is read as it comes, in little memory."""
        sent = PROGRAMS.call((program, variables or {}))
        place = self._place_for(payload)
        command = _command(sent, payload, place)
        with self._cli.executing(self.name, command, _SECONDS, f"exec {program}") as running:
            answer = AnswerStream(sent, running.read)
            try:
                answer.next_section()
                yield answer
            except CutOffError as error:
                running.stop()
                lines = running.complaint().strip().splitlines() or [str(error)]
                raise BackendUnreachableError(
                    f"instance {self.name}: the answer was cut off: {lines[-1]}"
                ) from None

    def _place_for(self, payload: bytes) -> str:
        """The copy of a payload that is too large for an argument; "" for a smaller one."""
        return self.upload(payload) if len(payload) > _LARGEST_INLINE else ""

    def upload(self, payload: bytes, name: str = "") -> str:
        """Copy it there, as a private file; its path, relative to the home folder.

        The program that reads it removes it; otherwise it goes after a day.
        """
        place = f"{BASE}/incoming/{name or secrets.token_hex(8)}"
        self._outgoing.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=self._outgoing) as file:  # of mode 0600
            file.write(payload)
            file.flush()
            for pause in (*_PAUSES, None):
                try:
                    self._cli.copy(Path(file.name), self.name, place)
                except RefusedError as error:
                    trouble = error
                else:
                    return place
                if pause is not None:
                    time.sleep(pause)
        raise BackendUnreachableError(f"instance {self.name}: {trouble}")


def clear_leftovers(outgoing: Path) -> None:
    """Remove files that killed clients were sending: they may hold secrets."""
    with contextlib.suppress(FileNotFoundError):
        for path in outgoing.iterdir():
            if time.time() - path.stat().st_mtime > _SENT_SECONDS:
                path.unlink()


def _command(sent: Call, payload: bytes, place: str) -> str:
    """The command for the instance's shell, whichever it is. `place` may have the payload."""
    program = f"/bin/sh -c {shlex.quote(sent.source.decode())}"
    if place:
        return f"{program} <{place}"
    if payload:
        return f"printf %s {base64.b64encode(payload).decode()} | base64 -d | {program}"
    return f"{program} </dev/null"
