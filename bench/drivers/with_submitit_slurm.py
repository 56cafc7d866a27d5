"""submitit's SlurmExecutor, on a host that has sbatch."""

from __future__ import annotations

import time
from pathlib import Path

import submitit  # type: ignore[import-not-found]  # only in its own environment


class Submitit:
    def __init__(self, folder: str) -> None:
        self._executor = submitit.SlurmExecutor(folder=Path(folder) / "jobs")
        self._executor.update_parameters(partition="closed", gpus_per_node=1, time=5)
        # Its pause of 0.2 s between two submissions is not what is compared.
        self._executor._throttling = 0.0

    def submit(self) -> float:
        began = time.monotonic()
        self._executor.submit(time.monotonic)
        return time.monotonic() - began


def open_in(folder: str) -> Submitit:
    return Submitit(folder)
