"""Answers of the daemon that arrive piece by piece."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import requests

_PIECE = 64 * 1024
_MAX_HELD = 1024 * 1024
_CLOSING_SECONDS = 1.0


class StreamedAnswer:
    """A long answer, read by a thread: its reader gets in one piece what arrived meanwhile.

    Any thread may close it. That ends it for its reader, too.
    """

    def __init__(self, answer: requests.Response) -> None:
        self._answer = answer
        self._made_in = os.getpid()
        self._changed = threading.Condition()
        self._held: list[bytes] = []
        self._size = 0
        self._over = False
        self._closing = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._read, name="tao-docker-stream", daemon=True)
        self._thread.start()

    def next_piece(self, seconds: float | None = None) -> bytes | None:
        """What arrives within so many seconds: None when nothing does, b"" at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._held or self._over or self._closing, seconds)
            if self._closing:
                return b""
            if self._held:
                piece = b"".join(self._held)
                self._held.clear()
                self._size = 0
                self._changed.notify_all()
                return piece
            if self._error is not None:
                raise self._error
            return b"" if self._over else None

    def put_back(self, piece: bytes) -> None:
        """Return this piece once more."""
        with self._changed:
            self._held.insert(0, piece)

    @property
    def closed(self) -> bool:
        """Whether it cannot be read on: a forked process has to ask for an answer of its own."""
        return self._closing or self._made_in != os.getpid()

    def close(self) -> None:
        """Close the connection, which tells the daemon to stop sending."""
        if self.closed:
            return
        self._closing = True
        with suppress(OSError, ValueError, RuntimeError):  # it has ended meanwhile
            self._answer.raw.shutdown()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSING_SECONDS)

    def _read(self) -> None:
        try:
            for piece in self._answer.iter_content(_PIECE):
                with self._changed:
                    if not self._held:
                        self._changed.notify_all()
                    self._held.append(piece)
                    self._size += len(piece)
                    self._changed.wait_for(lambda: self._size < _MAX_HELD or self._closing)
                if self._closing:
                    break
        except Exception as error:  # noqa: BLE001 - raised to the reader
            self._error = error
        finally:
            self._answer.close()
            with self._changed:
                self._over = True
                self._changed.notify_all()
