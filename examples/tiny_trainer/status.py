"""TAO's status.json: one JSON object per line, appended while the action runs."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType

from .errors import InterruptedBySignal

STATUS_FILE = "status.json"


class StatusLog:
    """Says STARTED on entry, and SUCCESS or FAILURE on exit, whatever way the exit is taken.

    A silent log (the ranks above 0) writes nothing.
    """

    def __init__(self, folder: Path, action: str, *, silent: bool = False) -> None:
        self._path = folder / STATUS_FILE
        self._action = action
        self._silent = silent
        self.final_kpi: dict[str, float] = {}
        """What the SUCCESS line reports."""

    def __enter__(self) -> StatusLog:
        if not self._silent:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        self._append("STARTED", f"Starting {self._action}.")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            message = f"{self._action.capitalize()} finished successfully."
            self._append("SUCCESS", message, kpi=self.final_kpi)
        elif isinstance(error, InterruptedBySignal):
            self._append("FAILURE", f"{self._action.capitalize()} was {error}.", level="WARNING")
        else:
            self._append("FAILURE", f"{type(error).__name__}: {error}", level="ERROR")

    def epoch(self, epoch: int, max_epoch: int, seconds: float, kpi: dict[str, float]) -> None:
        self.final_kpi = kpi
        self._append(
            "RUNNING",
            f"Epoch {epoch}/{max_epoch} finished.",
            kpi=kpi,
            epoch=epoch,
            max_epoch=max_epoch,
            time_per_epoch=str(timedelta(seconds=seconds)),
            eta=str(timedelta(seconds=seconds * (max_epoch - epoch))),
        )

    def _append(
        self,
        status: str,
        message: str,
        *,
        level: str = "INFO",
        kpi: dict[str, float] | None = None,
        **more: int | str,
    ) -> None:
        if self._silent:
            return
        now = datetime.now().astimezone()
        record = {
            "date": f"{now.month}/{now.day}/{now.year}",
            "time": f"{now:%H:%M:%S}",
            "status": status,
            "verbosity": level,
            "message": message,
            **more,
            "kpi": kpi or {},
        }
        line = json.dumps(record).encode() + b"\n"
        # One write per line: a reader sees a whole record or none of it.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
