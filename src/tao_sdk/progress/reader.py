"""`ProgressReader`: lines in, `Progress` out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone

from tao_sdk.progress.bars import read_keras, read_rich, read_tqdm
from tao_sdk.progress.lines import (
    read_lightning_checkpoint,
    read_lightning_end,
    read_mmengine,
    read_nemo,
    read_total_epochs,
)
from tao_sdk.progress.model import Progress
from tao_sdk.progress.plain import read_plain_epoch, read_plain_step
from tao_sdk.progress.records import StatusRecord, read_printed_dictionary, read_status
from tao_sdk.progress.sightings import Loop, Sighting
from tao_sdk.progress.tracker import Tracker
from tao_sdk.progress.transfers import TRANSFER_PREFIX, read_transfer
from tao_sdk.progress.wording import shortened
from tao_sdk.progress.yolo import YoloTable

_LINE_LIMIT = 262_144
"""Of a longer line only the end is read: bars redraw themselves in one endless line."""
_PIECE_LIMIT = 8_192
"""Of a longer piece only the beginning is read: no tool reports progress in more."""
_STATUS_LIMIT = 1_048_576

_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_REDRAWS = re.compile(r"[\r\n\x08]+")
_TEXT_BEHIND_A_BAR = re.compile(r"((?:it/s|s/it)[^\]\r\n]{0,400}\])(?=[^\s\]])")

# In the order of trust: what is unmistakable first, what people write by hand last.
_FORMATS: tuple[Callable[[str], Sighting | Loop | None], ...] = (
    read_tqdm,
    read_rich,
    read_printed_dictionary,
    read_mmengine,
    read_nemo,
    read_lightning_checkpoint,
    read_lightning_end,
    read_total_epochs,
    read_keras,
    read_plain_epoch,
    read_plain_step,
)

_RESTART = re.compile(
    r"\*\*\* (?:JOB|STEP) \S{1,40} ON \S{1,200} CANCELLED AT \S{1,40} "
    r"DUE TO (?:PREEMPTION|JOB REQUEUE|NODE FAILURE)"
    r"|Restarting worker group"
)
"""SLURM requeues the job, or torchrun starts its workers again: the same log goes on."""


class ProgressReader:
    """Reads the log of one job line by line; what is not progress is passed over.

    The progress does not run backwards when a line mentions an earlier moment. It does when the
    run begins again: by `restart()`, a new attempt in the runner's lines, a second STARTED in
    status.json, a requeue in the log, or steps that are gone through once more.
    """

    def __init__(self) -> None:
        self._tracker = Tracker()
        self._yolo = YoloTable()
        self._status_has_moved = False
        self._progress = Progress()

    @property
    def progress(self) -> Progress:
        return self._progress

    def feed(self, line: str, at: float | None = None) -> bool:
        """Take a line of the log, seen `at` seconds since 1970; True if the progress changed."""
        at = _known_moment(at)
        source = None
        for piece in _pieces(line):
            source = self._read(piece, at) or source
        return source is not None and self._update(source, at)

    def feed_status_line(self, line: str, at: float | None = None) -> bool:
        """The same for a line of TAO's status.json."""
        at = _known_moment(at)
        record = read_status(line) if len(line) <= _STATUS_LIMIT else None
        if record is None:
            return False
        self._note_status(record, at)
        return self._update(record.message or line, at)

    def restart(self) -> None:
        """A new attempt of the job has begun: what was known is of the one before."""
        self._tracker.restart()
        self._status_has_moved = False
        self._progress = Progress()

    def _read(self, piece: str, at: float | None) -> str | None:
        """Take one piece of a line; returns what to show of it, None if nothing was in it."""
        if TRANSFER_PREFIX in piece:
            transfer = read_transfer(piece)
            if transfer is None:
                return None
            self._tracker.note_transfer(transfer, at)
            return transfer.uri or piece
        record = read_status(piece) if '"status"' in piece else None
        if record is not None:
            self._note_status(record, at)
            return record.message or piece
        if _RESTART.search(piece):
            self._tracker.expect_restart()
            return piece
        found = self._recognise(piece)
        if isinstance(found, Sighting):
            self._tracker.note_training(found, at)
        elif isinstance(found, Loop):
            self._tracker.note_loop(found, at)
        return None if found is None else piece

    def _recognise(self, piece: str) -> Sighting | Loop | None:
        for read in (self._yolo.read, *_FORMATS):
            found = read(piece)
            if found is not None:
                return found
        return None

    def _note_status(self, record: StatusRecord, at: float | None) -> None:
        if record.status == "STARTED":
            # TAO says STARTED more than once before it begins; afterwards it is a new attempt.
            if self._status_has_moved:
                self._tracker.restart()
            self._status_has_moved = False
        self._tracker.enter_running()
        self._tracker.note_training(record.sighting, at)
        if record.sighting.has_position:
            self._status_has_moved = True
        if record.status in ("SUCCESS", "FAILURE"):
            self._tracker.finish(failed=record.status == "FAILURE")
            self._status_has_moved = True

    def _update(self, source: str, at: float | None) -> bool:
        before = self._progress
        now = replace(
            self._tracker.snapshot(), message=before.message, updated_at=before.updated_at
        )
        if now == before:
            return False
        self._progress = replace(now, message=shortened(source), updated_at=_iso(at))
        return True


def _pieces(line: str) -> Iterator[str]:
    """The updates that a line consists of, where tools overwrite what they have drawn."""
    text = _ESCAPES.sub("", line[-_LINE_LIMIT:])
    text = _TEXT_BEHIND_A_BAR.sub("\\1\r", text)
    for piece in _REDRAWS.split(text):
        if piece and not piece.isspace():
            yield piece[:_PIECE_LIMIT]


def _known_moment(at: float | None) -> float | None:
    """The time, unless it is none that a calendar knows."""
    return at if at is not None and 0 <= at < 253_402_300_000 else None


def _iso(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, timezone.utc).isoformat()
