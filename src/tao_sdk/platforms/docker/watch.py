"""The delay between polls: it ends early when the daemon reports an event."""

from __future__ import annotations

import json
import time
from collections.abc import Collection

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.capabilities import PollBackoff
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.streams import StreamedAnswer

# A job has ended, or the GPUs that another one waits for are free.
_EVENTS = ["die", "destroy"]
_FILTERS = {"type": ["container"], "label": [f"{config.LABEL}=true"], "event": _EVENTS}
# Events may be missed, so there is a poll from time to time.
_RARELY_SECONDS = 5.0
# The event of an end comes before the list of containers shows that end, so polls are frequent for
# a while after an event. This is also the pause between polls when many jobs end together.
_SETTLING_SECONDS, _SETTLING_PAUSE = 2.0, 0.1


class EventBackoff(PollBackoff):
    """Pauses that end with an event of certain jobs, or of GPUs they may wait for.

    Without a stream of events it just sleeps.
    """

    def __init__(self, transport: DockerClient, job_ids: Collection[str], longest: float) -> None:
        super().__init__(longest)
        self._transport = transport
        self._job_ids = frozenset(job_ids)
        self._events: StreamedAnswer | None = None
        self._unread = b""
        self._settled_at = 0.0

    @property
    def longest(self) -> float:
        return self._longest if self._events is None else _RARELY_SECONDS

    def pause(self, seconds: float) -> None:
        if time.monotonic() < self._settled_at:
            time.sleep(min(seconds, _SETTLING_PAUSE))
            return
        try:
            if self._listen(seconds):
                self._settled_at = time.monotonic() + _SETTLING_SECONDS
        except (BackendUnreachableError, DaemonError):
            self.close()
            time.sleep(min(seconds, self._longest))

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events, self._unread = None, b""

    def _listen(self, seconds: float) -> bool:
        """Whether an event of concern comes within so many seconds."""
        deadline = time.monotonic() + seconds
        if self._events is None:
            answer = self._transport.api.open_events(json.dumps(_FILTERS))
            self._events = StreamedAnswer(answer)
        while (left := deadline - time.monotonic()) > 0:
            with self._transport.reaching():
                piece = self._events.next_piece(left)
                if piece == b"":
                    raise ConnectionError("the stream of events ended")
            *events, self._unread = (self._unread + (piece or b"")).split(b"\n")
            if any(map(self._concerns, events)):
                return True
        return False

    def _concerns(self, event: bytes) -> bool:
        labels = json.loads(event)["Actor"]["Attributes"]
        of_gpus = config.LABEL_GPUS in labels or config.LABEL_LEASE in labels
        return of_gpus or labels.get(config.LABEL_JOB) in self._job_ids
