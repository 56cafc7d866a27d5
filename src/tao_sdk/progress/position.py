"""Where the training is: epochs and steps together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tao_sdk.progress.sightings import Sighting, Span


@dataclass(frozen=True)
class Position:
    """Epoch (from 1) and steps; the steps are of the epoch or of the whole run."""

    epoch: int | None = None
    epochs: int | None = None
    epoch_part: float | None = None
    step: int | None = None
    steps: int | None = None
    steps_of: Span = Span.RUN

    @property
    def fraction(self) -> float | None:
        """How much of the run is done; None when its length is not known."""
        within = self.step / self.steps if self.step is not None and self.steps else None
        if within is not None and self.steps_of is Span.RUN:
            return min(1.0, within)
        if self.epoch is None or self.epochs is None:
            return None
        part = within if within is not None else self.epoch_part
        if self.epoch_part is not None and part is not None:
            part = max(part, self.epoch_part)
        return min(1.0, (self.epoch - 1 + (part or 0.0)) / self.epochs)

    def is_same_count(self, seen: Sighting) -> bool:
        """Whether it counts the same steps: the totals of a nested loop differ."""
        return seen.step is not None and seen.steps is not None and seen.steps == self.steps

    def is_over_and_begun_again_by(self, seen: Sighting) -> bool:
        """Whether these steps were all done and are now counted from the start again.

        Half of them must be gone: ranks that lag behind are a few steps behind, not half a run.
        """
        if self.epoch is not None or not self.is_same_count(seen):
            return False
        done, total, now = self.step or 0, self.steps or 0, seen.step or 0
        return done >= total > 2 * now

    def is_ahead_of(self, seen: Sighting) -> bool:
        """Whether a sighting is of an earlier moment, or of another loop altogether."""
        if seen.epoch is not None and self.epoch is not None and seen.epoch != self.epoch:
            return seen.epoch < self.epoch
        if self._counts_like(seen):
            if seen.steps is not None and self.steps is not None and seen.steps != self.steps:
                return True
            return _less(seen.step, self.step)
        return _less(seen.epoch_part, self.epoch_part)

    def moved_by(self, seen: Sighting) -> Position:
        """The position after a sighting that is not behind."""
        moved = self
        if seen.epochs is not None:
            moved = replace(moved, epochs=seen.epochs)
        if seen.epoch is not None:
            moved = moved._in_epoch(seen)
        if seen.step is not None and moved._takes_steps_of(seen):
            moved = replace(
                moved,
                step=seen.step,
                steps=seen.steps if seen.steps is not None else moved.steps,
                steps_of=seen.steps_of,
            )
        if moved.epochs is not None and moved.epoch is not None and moved.epoch > moved.epochs:
            moved = replace(moved, epochs=None)  # whoever named that number meant something else
        return moved

    def _in_epoch(self, seen: Sighting) -> Position:
        moved = self
        if seen.epoch != self.epoch:
            moved = replace(moved, epoch=seen.epoch, epoch_part=None)
            if moved.steps_of is Span.EPOCH:
                moved = replace(moved, step=None)
        if seen.epoch_part is not None:
            moved = replace(moved, epoch_part=seen.epoch_part)
        return moved

    def _counts_like(self, seen: Sighting) -> bool:
        return seen.step is not None and self.step is not None and seen.steps_of is self.steps_of

    def _takes_steps_of(self, seen: Sighting) -> bool:
        """The first kind of count stays, unless it has no total and the other one has."""
        if self.step is None or seen.steps_of is self.steps_of:
            return True
        return self.steps is None and seen.steps is not None


def _less(new: float | None, old: float | None) -> bool:
    return new is not None and old is not None and new < old
