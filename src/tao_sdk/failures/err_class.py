"""What kind of failure it was; decides whether a retry makes sense."""

from __future__ import annotations

from enum import Enum


class ErrClass(str, Enum):
    """The ten classes, the same on every platform."""

    PROGRAM = "ERR_PROGRAM"
    OOM = "ERR_OOM"
    DATA = "ERR_DATA"
    CREDENTIAL = "ERR_CREDENTIAL"
    IMAGE = "ERR_IMAGE"
    CAPACITY = "ERR_CAPACITY"
    TIMEOUT = "ERR_TIMEOUT"
    PREEMPTED = "ERR_PREEMPTED"
    INFRA = "ERR_INFRA"
    UNKNOWN = "ERR_UNKNOWN"

    def __str__(self) -> str:
        return self.value

    @property
    def retriable(self) -> bool:
        """Would the same job, started again, stand a chance?"""
        return self in (ErrClass.PREEMPTED, ErrClass.INFRA)
