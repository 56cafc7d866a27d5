"""What the runner says, on stderr: lines for people, and lines that a program reads.

People read `tao-runner: staged 1,000 files, 64.0 MiB in 1.1 s (58 MiB/s)`. Programs read
`tao-progress: {...}`, one JSON object a line.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import deque
from typing import Any, TextIO

_PRINT_SECONDS = 1.0
_RATE_SAMPLES = 5
_USER_INFO = re.compile(r"(?<=://)[^/@]*@")
_DONE = {"staging": "staged", "running": "delivered meanwhile", "delivering": "delivered"}


class Reporter:
    """The runner's voice; any thread may use it."""

    def __init__(self, stream: TextIO | None = None, attempt: int = 1) -> None:
        self.warnings: list[str] = []
        self.lock = threading.RLock()
        self._stream: TextIO | None = stream or sys.stderr
        self.attempt = attempt

    def say(self, text: str) -> None:
        self._print(f"tao-runner: {text}")

    def warn(self, text: str) -> None:
        """Say it, and keep it for the result record."""
        with self.lock:
            self.warnings.append(text)
        self.say(f"warning: {text}")

    def stage(
        self,
        name: str,
        *,
        bytes_total: int | None = None,
        files_total: int | None = None,
        uri: str = "",
    ) -> Stage:
        """Begin a stage: staging, running or delivering. Totals that are not known are None."""
        return Stage(self, name, bytes_total, files_total, uri)

    def progress(self, fields: dict[str, Any]) -> None:
        record = {**fields, "attempt": self.attempt}
        self._print("tao-progress: " + json.dumps(record, separators=(",", ":")))

    def _print(self, line: str) -> None:
        with self.lock:
            if self._stream is None:
                return
            try:
                # In one piece: the command writes to the same place.
                self._stream.write(line.replace("\n", " ") + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                # Nobody reads any more (ValueError: closed). Words must not end a job.
                self._stream = None


class Stage:
    """The progress of one stage. All counts are sums over the whole stage."""

    def __init__(
        self,
        reporter: Reporter,
        name: str,
        bytes_total: int | None,
        files_total: int | None,
        uri: str,
    ) -> None:
        self.bytes_done = 0
        self.files_done = 0
        self.seconds = 0.0
        self._reporter = reporter
        self._name = name
        self._bytes_total = bytes_total
        self._files_total = files_total
        self._uri = public_uri(uri)
        self._began = time.monotonic()
        self._printed = self._began
        self._samples: deque[tuple[float, int]] = deque(maxlen=_RATE_SAMPLES)
        self._print(self._began)

    def expect(self, nbytes: int, files: int, uri: str = "") -> None:
        """There is more to do than was known so far."""
        with self._reporter.lock:
            self._bytes_total = (self._bytes_total or 0) + nbytes
            self._files_total = (self._files_total or 0) + files
            self._uri = public_uri(uri) or self._uri

    def add(self, nbytes: int) -> None:
        """Bytes have moved; less than none when a transfer begins anew."""
        self._count(nbytes, 0)

    def file_done(self) -> None:
        self._count(0, 1)

    def done(self) -> None:
        """The stage is over: once, whatever was achieved."""
        with self._reporter.lock:
            now = time.monotonic()
            self.seconds = now - self._began
            self._print(now)
            if self.files_done:
                self._reporter.say(f"{_DONE[self._name]} {self._summary()}")

    def _count(self, nbytes: int, files: int) -> None:
        with self._reporter.lock:
            self.bytes_done = max(0, self.bytes_done + nbytes)
            self.files_done += files
            now = time.monotonic()
            if now - self._printed >= _PRINT_SECONDS:
                self._print(now)

    def _print(self, now: float) -> None:
        fields: dict[str, Any] = {"stage": self._name}
        if self._bytes_total is not None:
            fields["bytes_done"] = self.bytes_done
            fields["bytes_total"] = max(self._bytes_total, self.bytes_done)
        if self._files_total is not None:
            fields["files_done"] = self.files_done
            fields["files_total"] = max(self._files_total, self.files_done)
        self._samples.append((now, self.bytes_done))
        since, before = self._samples[0]
        if now > since and self.bytes_done > before:
            fields["rate"] = round((self.bytes_done - before) / (now - since), 1)
        if self._uri:
            fields["uri"] = self._uri
        self._printed = now
        self._reporter.progress(fields)

    def _summary(self) -> str:
        files = "1 file" if self.files_done == 1 else f"{self.files_done:,} files"
        text = f"{files}, {size_text(self.bytes_done)} in {self.seconds:.1f} s"
        if self._name == "running":  # most of that time nothing moved
            return text
        return f"{text} ({size_text(self.bytes_done / max(self.seconds, 1e-3), digits=0)}/s)"


def public_uri(uri: str) -> str:
    """A URI without what may be a credential: its query and its user."""
    return _USER_INFO.sub("", uri.partition("?")[0])


def size_text(nbytes: float, digits: int = 1) -> str:
    """`64.0 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.{0 if unit == 'bytes' else digits}f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.{digits}f} TiB"


def moment(seconds: float | None = None) -> str:
    """A point in time, now by default, as records have it: ISO 8601, UTC."""
    seconds = time.time() if seconds is None else seconds
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{int(seconds * 1000) % 1000:03d}Z"
