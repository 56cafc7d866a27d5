"""`Progress`: what is known about how far a job is, at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tao_sdk.progress.wording import amount_of_bytes, number, rough_span

_QUALITY_WORDS = ("map", "acc", "iou", "f1", "auc", "reward", "precision", "recall")
"""How metrics of quality are called, the most telling first."""
_HELD_OUT = ("val", "eval", "test")
_LOSS = "loss"


@dataclass(frozen=True)
class Progress:
    """A snapshot. Everything that is not known is None (or empty), never a guess.

    `fraction` and `eta_seconds` are of the present stage; `eta_seconds` as of `updated_at`.
    """

    stage: str = ""
    """"staging", "running", "delivering", or "" while nothing is known."""
    epoch: int | None = None
    """The epoch at work, or the last one finished; counted from 1, however the tool counts."""
    epochs: int | None = None
    step: int | None = None
    """Steps done: of the epoch where the tool counts them so, otherwise of the whole run."""
    steps: int | None = None
    loss: float | None = None
    """The latest training loss; None also when it is not a finite number."""
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    """The latest value under every name that the tool prints; finite numbers only."""
    not_finite: tuple[str, ...] = ()
    """Names whose latest value is NaN or infinite: the training has probably diverged."""
    rate: float | None = None
    rate_unit: str = ""
    """"it/s" for steps, "MB/s" for transfers."""
    fraction: float | None = None
    eta_seconds: float | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None
    files_done: int | None = None
    files_total: int | None = None
    message: str = ""
    """What it was read from, shortened."""
    updated_at: str = ""
    """ISO time of the last change; "" when the reader was not told the time."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, in this order, fit for any JSON writer."""
        return {
            "stage": self.stage,
            "epoch": self.epoch,
            "epochs": self.epochs,
            "step": self.step,
            "steps": self.steps,
            "loss": self.loss,
            "metrics": dict(sorted(self.metrics.items())),
            "not_finite": list(self.not_finite),
            "rate": self.rate,
            "rate_unit": self.rate_unit,
            "fraction": self.fraction,
            "eta_seconds": self.eta_seconds,
            "bytes_done": self.bytes_done,
            "bytes_total": self.bytes_total,
            "files_done": self.files_done,
            "files_total": self.files_total,
            "message": self.message,
            "updated_at": self.updated_at,
        }

    def summary(self) -> str:
        """One short line for people; "" while nothing is known."""
        transferring = self.stage in ("staging", "delivering")
        parts = self._transfer_parts() if transferring else self._training_parts()
        if self.eta_seconds is not None and self.eta_seconds >= 1:
            parts = [*parts, f"{rough_span(self.eta_seconds)} left"]
        return " · ".join(parts)

    def _transfer_parts(self) -> list[str]:
        parts = [self.stage]
        if self.bytes_done is not None:
            parts.append(amount_of_bytes(self.bytes_done, self.bytes_total))
        if self.files_done is not None:
            parts.append(f"{_of(self.files_done, self.files_total)} files")
        if self.rate is not None:
            parts.append(f"{number(self.rate)} {self.rate_unit}")
        return parts

    def _training_parts(self) -> list[str]:
        parts = []
        if self.epoch is not None:
            parts.append(f"epoch {_of(self.epoch, self.epochs)}")
        if self.step is not None:
            parts.append(f"step {_of(self.step, self.steps)}")
        if self.loss is not None:
            parts.append(f"loss {number(self.loss)}")
        parts += [f"{name} is not finite" for name in self.not_finite[:1]]
        headline = min(self._headlines(), default=None)
        if headline is not None:
            name = headline[1]
            parts.append(f"{name} {number(self.metrics[name])}")
        return parts or [self.stage] * bool(self.stage)

    def _headlines(self) -> Iterator[tuple[tuple[int, ...], str]]:
        """The metrics worth a place in a summary with their rank: the least is best."""
        for place, name in enumerate(self.metrics):
            lowered = name.lower()
            held_out = lowered.startswith(_HELD_OUT)
            words = [rank for rank, word in enumerate(_QUALITY_WORDS) if word in lowered]
            if words:
                yield (0 if held_out else 1, words[0], place), name
            elif _LOSS in lowered and (held_out or self.loss is None):
                yield (2, 0, place), name


def _of(done: int, total: int | None) -> str:
    return str(done) if total is None else f"{done}/{total}"
