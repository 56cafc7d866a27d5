"""How far a job is, read from its log and from TAO's status.json."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tao_sdk.cli.jobs import FoundJob
from tao_sdk.errors import TaoError
from tao_sdk.progress import Progress, ProgressReader
from tao_sdk.untrusted import open_regular

_FIRST_LINES = 1000
"""Of an existing log only the end is read, which shows the present progress."""
_FIRST_STATUS_BYTES = 256 * 1024
_RANK = re.compile(r"\[rank \d+\] ")


class ProgressFeed:
    """The progress of one job. Every `update` reads only what is new since the one before."""

    def __init__(self) -> None:
        self._reader = ProgressReader()
        self._cursor = ""
        self._offsets: dict[Path, int] = {}

    @property
    def progress(self) -> Progress | None:
        """The progress; None if nothing is known."""
        known = self._reader.progress
        return known if known != Progress() else None

    def update(self, job: FoundJob) -> Progress | None:
        """Read on. Raises `TaoError` or `OSError` when the log cannot be read now."""
        if job.row["phase"] != "submitted":
            return None  # the platform has nothing to read from
        now = time.time()
        self._read_status(job.row["local_results_dir"], now)
        self._read_log(job, now)
        return self.progress if not job.terminal else _ended(self.progress)

    def _read_log(self, job: FoundJob, now: float) -> None:
        tail = None if self._cursor else _FIRST_LINES
        lines = job.sdk.stream_logs(job.job_id, follow=False, tail=tail, cursor=self._cursor)
        for line in lines:
            self._reader.feed(_RANK.sub("", line, count=1), at=now)
        self._cursor = lines.cursor

    def _read_status(self, results: str, now: float) -> None:
        """TAO writes status.json into the results, or one folder below, one record per line."""
        if not results:
            return
        folder = Path(results)
        for path in sorted([*folder.glob("status.json"), *folder.glob("*/status.json")]):
            file = open_regular(path)
            if file is None:
                continue
            with file:
                size = file.seek(0, 2)
                offset = self._offsets.get(path, 0)
                if size < offset:
                    offset = 0  # written anew
                offset = file.seek(max(offset, size - _FIRST_STATUS_BYTES))
                data = file.read(size - offset)
            whole = data[: data.rfind(b"\n") + 1]
            for line in whole.decode("utf-8", "replace").splitlines():
                self._reader.feed_status_line(line, at=now)
            self._offsets[path] = offset + len(whole)


class ProgressFeeds:
    """The progress of many jobs, each with its own place in its log."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._feeds: dict[str, ProgressFeed] = {}

    def update(self, jobs: Sequence[FoundJob]) -> dict[str, Progress]:
        """How far these jobs are, as far as is known; reads on in their logs."""
        known = {job.job_id: self._update(job) for job in jobs}
        return {job_id: progress for job_id, progress in known.items() if progress is not None}

    def _update(self, job: FoundJob) -> Progress | None:
        feed = self._feeds.setdefault(job.job_id, ProgressFeed())
        try:
            return feed.update(job)
        except (TaoError, OSError) as error:
            self._complain(f"progress cannot be read: {error}")
            return feed.progress


def _ended(progress: Progress | None) -> Progress | None:
    """The progress without an estimate of the time left."""
    return progress and replace(progress, eta_seconds=None)
