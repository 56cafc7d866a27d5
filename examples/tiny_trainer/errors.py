"""What can go wrong on purpose, and the exit code each kind ends with."""

from __future__ import annotations


class TrainerError(Exception):
    """The action cannot go on. The message says why and what to do."""

    exit_code = 1


class SpecError(TrainerError):
    """The command line, spec file or environment is wrong; raised before anything is written."""

    exit_code = 2


class CheckpointError(TrainerError):
    """A checkpoint is missing, damaged, or does not fit the model or the data."""


class DataError(TrainerError):
    """The data set cannot be read."""


class PeerError(TrainerError):
    """Another rank is missing, has gone, or trains something else."""


class InterruptedBySignal(Exception):  # noqa: N818 - a request to stop is not an error
    """SIGTERM or SIGINT asked us to stop."""

    def __init__(self, signal_number: int, note: str = "") -> None:
        super().__init__(f"interrupted by signal {signal_number}{note}")
        self.exit_code = 128 + signal_number
