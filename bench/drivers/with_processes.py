"""Bare processes: the least that any way of running jobs must cost."""

from __future__ import annotations

import subprocess
import sys
import time

import moments


class Processes:
    def __init__(self, folder: str) -> None:
        self._command = [sys.executable, str(moments.write_program(folder))]

    def one(self) -> dict[str, float]:
        began = time.monotonic()
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        returned = time.monotonic()
        printed, _ = process.communicate()
        return moments.one_job(began, returned, float(printed))

    def many(self, count: int) -> dict[str, float]:
        began = time.monotonic()
        running = [subprocess.Popen(self._command, stdout=subprocess.DEVNULL) for _ in range(count)]
        submitted = time.monotonic()
        completed = sum(process.wait() == 0 for process in running)
        return moments.many_jobs(began, submitted, time.monotonic(), completed)


def open_in(folder: str) -> Processes:
    return Processes(folder)
