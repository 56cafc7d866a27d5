"""When things happened to a job. All clocks are the machine's one monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

# Does nothing but tell when it ran.
PROGRAM = "import time\nprint(time.monotonic())\n"
POLL_SECONDS = 0.005
PATIENCE_SECONDS = 300.0


def write_program(folder: str) -> Path:
    path = Path(folder) / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def wait_until(ended: Callable[[], bool]) -> None:
    """For tools that have no call that waits, or one that looks only once a second."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ended():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no end after {PATIENCE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def one_job(began: float, returned: float, ran: float) -> dict[str, float]:
    return {"until the call returns": returned - began, "until the program runs": ran - began}


def many_jobs(began: float, submitted: float, ended: float, completed: int) -> dict[str, float]:
    return {"seconds": ended - began, "submitted": submitted - began, "completed": completed}
