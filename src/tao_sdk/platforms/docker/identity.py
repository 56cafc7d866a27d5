"""Which daemon it is, and with which data: asked before a job counts as gone.

A daemon that was started without its disk, or with another `data-root`, knows none of its jobs, yet
none of them is gone. From Docker 23 on, the daemon's ID lies in its data and tells. Before, and on
hosts that were upgraded from there, the ID comes from a key of the host and survives the data.
There an empty volume tells, which has a random name as its label.

If that volume is removed by hand, only a person can know whether the data is still that of a job:
the job's message has the command that makes the volume again with the name that the job remembers.
So the label may hold several names.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.endpoint import Endpoint

VOLUME = "tao-sdk-identity"
_LABEL_DATA = "tao-sdk-data"
_SEPARATOR = ","
_FROM_A_KEY_OF_THE_HOST = re.compile(r"[A-Z2-7]{4}(?::[A-Z2-7]{4}){11}")
_log = logging.getLogger("tao_sdk.docker")


@dataclass(frozen=True)
class Daemon:
    """A daemon with its data."""

    id: str
    data: tuple[str, ...] = ()
    """The names of its data, the newest first; none where the ID tells, or nothing does."""

    def native(self) -> dict[str, str]:
        """What a job remembers of it."""
        return {"daemon": self.id, "data": self.data[0] if self.data else ""}

    def has(self, native: Mapping[str, Any]) -> bool:
        """Whether a job that remembers this was given to this daemon, with the data it has now."""
        return native["daemon"] == self.id and native.get("data", "") in ("", *self.data)

    def why_not(self, native: Mapping[str, Any], here: Endpoint) -> str:
        """Why this daemon, which does not have the job, cannot be asked about it."""
        if native["daemon"] != self.id:
            return (
                f"the job runs on another Docker daemon: set DOCKER_HOST={native['endpoint']} "
                f"(this one is {here}; a daemon that lost its data-root counts as another)"
            )
        removal = f"docker volume rm {VOLUME} && " if self.data else ""
        names = _SEPARATOR.join((*self.data, native["data"]))
        return (
            f"the Docker daemon at {here} has not the data that it had when the job was "
            "submitted: is its data-root the same, and mounted? If it is, and only the volume "
            f"by which we know it was removed, run `{removal}docker volume create "
            f"--label {_LABEL_DATA}={names} {VOLUME}`"
        )


class Identity:
    """The identity of the daemon behind one transport."""

    def __init__(self, transport: DockerClient) -> None:
        self._transport = transport
        self._known: Daemon | None = None

    def known(self) -> Daemon:
        """The answer of the last `ask`."""
        if self._known is None:
            self._known = self._describe(self._transport.info["ID"])
        return self._known

    def ask(self) -> Daemon:
        """The daemon as it is now: another one may answer at the same address later."""
        self._known = self._describe(self._transport.api.info()["ID"])
        return self._known

    def mark(self) -> None:
        """Make the volume where the ID does not tell the data."""
        daemon = self.ask()
        if daemon.data or not _FROM_A_KEY_OF_THE_HOST.fullmatch(daemon.id):
            return
        labels = {config.LABEL: "true", _LABEL_DATA: uuid.uuid4().hex}
        try:
            # Of several clients at once, the first makes it; the others get what there is.
            self._transport.api.create_volume(VOLUME, labels=labels)
        except DaemonError as error:
            _log.warning("this daemon is known by its ID alone: no volume %s: %s", VOLUME, error)
        self.ask()

    def _describe(self, daemon: str) -> Daemon:
        return Daemon(daemon, self._data() if _FROM_A_KEY_OF_THE_HOST.fullmatch(daemon) else ())

    def _data(self) -> tuple[str, ...]:
        try:
            found = self._transport.api.inspect_volume(VOLUME)
        except DaemonError as error:
            if error.status in (403, 404):  # a daemon may let its users see no volumes
                return ()
            raise
        names = str((found["Labels"] or {}).get(_LABEL_DATA, ""))
        return tuple(name for name in names.split(_SEPARATOR) if name)
