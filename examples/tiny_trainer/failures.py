"""Failing on demand: what a spec's `fail_at_epoch` and `fail_with` bring about."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from typing import NoReturn

import numpy as np

from .model import Weights
from .spec import TrainSpec


class OutOfMemoryError(RuntimeError):
    """Looks in a log as torch's error of this name does."""


def fail_if_due(spec: TrainSpec, epoch: int, rank: int, weights: Weights) -> None:
    """Fail in the way the spec asks for, if this is the epoch and the rank for it."""
    if epoch != spec.fail_at_epoch or spec.fail_rank not in (None, rank):
        return
    if spec.fail_with == "nan":
        # The next loss is not a number, and training finds that out by itself.
        weights["layers.0.weight"][:] = np.nan
    elif spec.fail_with == "exception":
        raise RuntimeError(f"asked to fail at epoch {epoch}")
    elif spec.fail_with == "oom":
        raise OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of "
            "79.15 GiB of which 1.25 GiB is free."
        )
    elif spec.fail_with == "segfault":
        _segfault()
    elif spec.fail_with == "hang":
        _hang(epoch)
    else:
        # Without any goodbye: no FAILURE in status.json, as when a process is killed.
        sys.stdout.flush()
        os._exit(int(spec.fail_with.removeprefix("exit:")))


def _segfault() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A true fault, not a signal to ourselves: that would not reach process 1 of a container.
    ctypes.string_at(0)


def _hang(epoch: int) -> NoReturn:
    """Never end the batch, so that SIGTERM is noted in vain: only SIGKILL helps."""
    print(f"Hanging at epoch {epoch}, as asked", flush=True)
    while True:
        time.sleep(60)
