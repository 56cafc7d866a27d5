"""How long to wait for other processes."""

from __future__ import annotations

import time
from typing import NamedTuple

from tao_sdk import settings


class Deadline(NamedTuple):
    """A moment of the monotonic clock, and the patience it came from."""

    at: float
    patience: float

    @classmethod
    def from_settings(cls) -> Deadline:
        patience = settings.get_seconds("TAO_SDK_BUSY_SECONDS")
        return cls(time.monotonic() + patience, patience)

    @property
    def remaining(self) -> float:
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining == 0.0

    @property
    def advice(self) -> str:
        return f"waited {self.patience:g} s (TAO_SDK_BUSY_SECONDS): try again, or allow more time"
