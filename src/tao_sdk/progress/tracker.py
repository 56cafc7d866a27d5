"""Adds sightings up to one progress that does not run backwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tao_sdk.progress.model import Progress
from tao_sdk.progress.pace import Estimate
from tao_sdk.progress.position import Position
from tao_sdk.progress.sightings import Loop, Sighting, Span, Transfer

_MOST_NAMES = 64
_LOSS_NAMES = (
    "loss",
    "train_loss",
    "train/loss",
    "training_loss",
    "train_loss_step",
    "reduced_train_loss",
    "total_loss",
    "lm_loss",
    "train/loss_avg",
    "train/avg_loss",
    "train_loss_epoch",
    "running_average_loss",
    "mini_batch_loss",
    "avg_loss",
)
"""What tools call the training loss, the one to believe first."""
_BACKWARD_STEPS_OF_A_RESTART = 10
_MEGABYTE = 1e6


class Tracker:
    """All that is known, in constant memory."""

    def __init__(self) -> None:
        self._counts_from_zero = False
        self._attempt: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._stage = ""
        self._position = Position()
        self._values: dict[str, float] = {}
        self._loss: float | None = None
        self._rate: float | None = None
        self._transfer: Transfer | None = None
        self._trained = False
        self._over = False
        self._failed = False
        self._loop: Loop | None = None
        """The latest bar without a name that may turn out to be the training."""
        self._loop_is_training = False
        self._in_rounds = False
        """The steps came to their end and began again: they are not those of the run."""
        self._restart_is_expected = False
        self._announced_epoch: int | None = None
        self._behind: tuple[int, int] | None = None
        """Epoch and step of the last sighting that was behind ..."""
        self._times_behind = 0
        """... and how many of them followed each other in order."""
        self._estimate = Estimate()

    def restart(self) -> None:
        """The run begins again, from its start or from a checkpoint."""
        self._forget()

    def expect_restart(self) -> None:
        """The run was interrupted. If it goes on from an earlier place, that counts."""
        self._restart_is_expected = True
        self._estimate = Estimate()

    # -- what is seen

    def enter_running(self) -> None:
        if self._stage in ("", "staging"):
            self._enter("running")

    def finish(self, *, failed: bool) -> None:
        self.enter_running()
        self._over, self._failed = not failed, failed

    def note_training(self, seen: Sighting, at: float | None) -> None:
        seen = self._counted_from_one(seen)
        if seen.announces_epoch:
            self._announced_epoch = seen.epoch
        is_training = seen.has_position or _training_loss(seen.values) is not None
        if is_training:
            self._settle_loop(seen)
        seen = self._placed(seen)
        if self._position.is_ahead_of(seen) and not self._has_restarted(seen):
            if seen.is_current:
                self._note_values(seen.values)
            return
        self.enter_running()
        if is_training:
            self._trained, self._failed = True, False
        if seen.has_position:
            self._behind, self._times_behind = None, 0
            self._restart_is_expected = False
        if seen.epoch_part == 1:
            self._announced_epoch = None
        self._position = self._position.moved_by(seen)
        self._over = self._over or seen.finished
        self._note_values(seen.values)
        self._note_pace(seen.rate, self._left_of_run(seen), at)

    def note_loop(self, loop: Loop, at: float | None) -> None:
        """A bar of its own: the steps of an epoch, of the whole run, or of something else.

        A bar of another length than the one already followed is told apart by the position.
        """
        if self._stage in ("staging", "delivering"):
            return
        if self._announced_epoch is not None and not loop.evaluation:
            self.note_training(loop.as_steps_of_epoch(self._announced_epoch), at)
        elif self._loop_is_training or loop.training:
            self.note_training(loop.as_steps_of_run(), at)
        elif self._trained:
            if not loop.evaluation:
                self._loop = loop
        elif self._loop is None or self._loop.finished or loop.total == self._loop.total:
            self._follow(loop, at)

    def note_transfer(self, seen: Transfer, at: float | None) -> None:
        if seen.attempt is not None and self._attempt is not None:
            if seen.attempt < self._attempt:
                return  # the last words of an attempt that is over
            if seen.attempt > self._attempt:
                self.restart()
        if seen.stage == "staging" and self._stage not in ("", "staging"):
            self.restart()
        self._attempt = seen.attempt if seen.attempt is not None else self._attempt
        if seen.stage == "running" and self._stage == "delivering":
            return
        if seen.stage != self._stage:
            self._enter(seen.stage)
        self._transfer = seen.or_ahead(self._transfer)
        if seen.stage != "running":
            self._estimate.note(self._transfer.seconds_left, self._fraction(), at)

    # -- what is known

    def snapshot(self) -> Progress:
        transfer = self._transfer or Transfer(self._stage)
        moving = self._stage in ("staging", "delivering")
        rate = transfer.bytes_per_second if moving else self._rate
        return Progress(
            stage=self._stage,
            epoch=self._position.epoch,
            epochs=self._position.epochs,
            step=self._position.step,
            steps=self._position.steps,
            loss=self._loss,
            metrics={name: value for name, value in self._values.items() if math.isfinite(value)},
            not_finite=tuple(
                name for name, value in self._values.items() if not math.isfinite(value)
            ),
            rate=None if rate is None else round(rate / _MEGABYTE if moving else rate, 4),
            rate_unit="" if rate is None else "MB/s" if moving else "it/s",
            fraction=_rounded(self._fraction(), 6),
            eta_seconds=_rounded(self._seconds_left(), 1),
            bytes_done=transfer.bytes_done,
            bytes_total=transfer.bytes_total,
            files_done=transfer.files_done,
            files_total=transfer.files_total,
        )

    def _fraction(self) -> float | None:
        if self._stage in ("staging", "delivering"):
            return self._transfer.fraction if self._transfer else None
        return 1.0 if self._over else self._position.fraction

    def _seconds_left(self) -> float | None:
        if self._stage == "running":
            if self._failed:
                return None
            if self._over:
                return 0.0
        return self._estimate.seconds_left()

    # -- how it adds up

    def _enter(self, stage: str) -> None:
        self._stage = stage
        self._transfer = None
        self._rate = None
        self._estimate = Estimate()

    def _counted_from_one(self, seen: Sighting) -> Sighting:
        if seen.epoch is None or seen.first_epoch == 1:
            return seen
        if seen.first_epoch == 0 or seen.epoch == 0:
            self._counts_from_zero = True
        epoch = seen.epoch + int(self._counts_from_zero)
        epochs = seen.epochs
        if epochs is not None and epoch == epochs + 1:
            epochs = epoch  # "Epoch 9/9" after an "Epoch 0/9" is the tenth of ten
        return replace(seen, epoch=epoch, epochs=epochs, first_epoch=1)

    def _placed(self, seen: Sighting) -> Sighting:
        """Steps told without an epoch: of the one announced, of one nobody names, of the run."""
        if seen.epoch is not None or seen.step is None or seen.steps is None:
            return seen
        if self._announced_epoch is not None:
            return replace(seen, epoch=self._announced_epoch, steps_of=Span.EPOCH)
        if self._position.is_over_and_begun_again_by(seen):
            self._in_rounds = True
            self._position = replace(self._position, step=None)
            self._estimate = Estimate()
        if self._in_rounds:
            return replace(seen, steps_of=Span.EPOCH, seconds_left_of=Span.EPOCH)
        return seen

    def _has_restarted(self, seen: Sighting) -> bool:
        """Whether what looks like an old position is a new start.

        A table or a message mentions old epochs; only a run that trains them again goes through
        their steps, one after another.
        """
        if self._restart_is_expected:
            self.restart()
            return True
        if not self._position.is_same_count(seen):
            return False
        moment = _moment(seen)
        if self._behind is None or moment > self._behind:
            self._times_behind += 1
        elif moment < self._behind:
            self._times_behind = 1
        self._behind = moment
        if self._times_behind < _BACKWARD_STEPS_OF_A_RESTART:
            return False
        # Nobody said so, hence the same program goes on in the same way.
        announced, epochs = self._announced_epoch, self._position.epochs
        self.restart()
        self._announced_epoch, self._position = announced, Position(epochs=epochs)
        return True

    def _settle_loop(self, seen: Sighting) -> None:
        """Training is seen: the bar without a name was it, or was something before it."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if seen.confirms_loop and not loop.finished:
            self._loop_is_training = True
            self._position = self._position.moved_by(loop.as_steps_of_run())
        elif not self._trained:
            self._forget_loop()

    def _forget_loop(self) -> None:
        self._position = Position(epochs=self._position.epochs)
        self._in_rounds = False
        self._rate = None
        self._estimate = Estimate()

    def _follow(self, loop: Loop, at: float | None) -> None:
        """Before any training the bar itself is what the job does."""
        self.enter_running()
        if self._loop is not None and self._loop.total != loop.total:
            self._forget_loop()
        seen = self._placed(loop.as_steps_of_run())
        if self._position.is_ahead_of(seen):
            return
        self._loop = loop
        self._position = self._position.moved_by(seen)
        self._note_values(loop.values)
        self._note_pace(loop.rate, self._left_of_run(seen), at)

    def _note_values(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if name in self._values or len(self._values) < _MOST_NAMES:
                self._values[name] = value
        loss = _training_loss(values)
        if loss is not None:
            self._loss = loss if math.isfinite(loss) else None

    def _left_of_run(self, seen: Sighting) -> float | None:
        """The tool's estimate for the run; one for the epoch is extended over the later ones."""
        if seen.seconds_left is None or seen.seconds_left_of is Span.RUN:
            return seen.seconds_left
        epoch, epochs = self._position.epoch, self._position.epochs
        if epoch is None or epochs is None:
            return None
        if epoch == epochs:
            return seen.seconds_left
        if seen.epoch_seconds is None:
            return None
        return seen.seconds_left + (epochs - epoch) * seen.epoch_seconds

    def _note_pace(self, rate: float | None, left: float | None, at: float | None) -> None:
        if self._stage == "running":  # late output must not change the estimate of a delivery
            self._rate = rate if rate is not None else self._rate
            self._estimate.note(left, self._fraction(), at)


def _training_loss(values: Mapping[str, float]) -> float | None:
    by_lower_name = {name.lower(): value for name, value in values.items()}
    return next((by_lower_name[name] for name in _LOSS_NAMES if name in by_lower_name), None)


def _moment(seen: Sighting) -> tuple[int, int]:
    return seen.epoch or 0, seen.step or 0


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
