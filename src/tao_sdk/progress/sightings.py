"""What one piece of a log can say. The readers of formats make these; the tracker adds them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Span(Enum):
    """What a count of steps, or an estimate of the time left, is of."""

    EPOCH = "epoch"
    RUN = "run"


@dataclass(frozen=True)
class Sighting:
    """A statement about the training: any part of it may be missing."""

    epoch: int | None = None
    """As the tool counts."""
    first_epoch: int | None = 1
    """Where it begins to count, 0 or 1; None when the line does not tell."""
    epochs: int | None = None
    """How many there are, wherever the counting begins."""
    epoch_part: float | None = None
    """How much of `epoch` is done, 0 to 1, where the line tells that other than by steps."""
    step: int | None = None
    steps: int | None = None
    steps_of: Span = Span.RUN
    announces_epoch: bool = False
    """The line says no more than that `epoch` begins: bars without a name are its steps."""
    values: Mapping[str, float] = field(default_factory=dict)
    """The named numbers; NaN and infinity are allowed here."""
    rate: float | None = None
    """Steps per second."""
    seconds_left: float | None = None
    seconds_left_of: Span = Span.RUN
    epoch_seconds: float | None = None
    """How long an epoch takes, where the line tells."""
    confirms_loop: bool = False
    """Tools that print this show the training as a bar without a name."""
    is_current: bool = False
    """It was written at this moment of the run, even if its count is behind ours."""
    finished: bool = False

    @property
    def has_position(self) -> bool:
        return self.epoch is not None or self.step is not None


@dataclass(frozen=True)
class Loop:
    """A bar that counts something without saying of what: an epoch, the run, something else."""

    done: int
    total: int | None
    training: bool = False
    """It says that it is training ..."""
    evaluation: bool = False
    """... or that it is not; without either it may be anything."""
    values: Mapping[str, float] = field(default_factory=dict)
    rate: float | None = None
    seconds_left: float | None = None
    seconds_in_all: float | None = None

    @property
    def finished(self) -> bool:
        return self.total is not None and self.done >= self.total

    def as_steps_of_epoch(self, epoch: int) -> Sighting:
        return Sighting(
            epoch=epoch,
            step=self.done,
            steps=self.total or None,
            steps_of=Span.EPOCH,
            values=self.values,
            rate=self.rate,
            seconds_left=self.seconds_left,
            seconds_left_of=Span.EPOCH,
            epoch_seconds=self.seconds_in_all,
        )

    def as_steps_of_run(self) -> Sighting:
        return Sighting(
            step=self.done,
            steps=self.total or None,
            values=self.values,
            rate=self.rate,
            seconds_left=self.seconds_left,
        )


@dataclass(frozen=True)
class Transfer:
    """The runner moves data: see `transfers`."""

    stage: str
    attempt: int | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None
    files_done: int | None = None
    files_total: int | None = None
    bytes_per_second: float | None = None
    uri: str = ""

    @property
    def fraction(self) -> float | None:
        for done, total in (
            (self.bytes_done, self.bytes_total),
            (self.files_done, self.files_total),
        ):
            if done is not None and total:
                return min(1.0, done / total)
        return None

    @property
    def seconds_left(self) -> float | None:
        if self.bytes_done is None or self.bytes_total is None or not self.bytes_per_second:
            return None
        return max(0, self.bytes_total - self.bytes_done) / self.bytes_per_second

    def or_ahead(self, before: Transfer | None) -> Transfer:
        """The one of two reports of the same transfer that is ahead: ranks may overtake."""
        if before is None or before.bytes_total != self.bytes_total:
            return self
        if self.bytes_done is None or before.bytes_done is None:
            return self
        return self if self.bytes_done >= before.bytes_done else before
