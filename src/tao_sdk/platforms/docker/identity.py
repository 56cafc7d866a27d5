"""Which daemon it is, and with which data: asked before a job counts as gone.

A daemon that was started without its disk, or with another `data-root`, knows none of its jobs,
and yet none of them is gone. From Docker 23 on a daemon's ID lies in its data and tells. Before,
and on hosts that were upgraded from there, the ID comes from a key of the host and survives the
data. There a volume of ours tells: an empty one, with a name of its own making as its label.

That volume may be removed by hand. Then it is not known whether jobs that are gone were on this
data, and only a person can say so: by making it again with the name that the jobs remember, and
with further ones if others have been submitted since. So the label holds any number of names.
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
    """Its names, the newest first; none where the ID says it, or nothing does."""

    def native(self) -> dict[str, str]:
        """What a job remembers of it."""
        return {"daemon": self.id, "data": self.data[0] if self.data else ""}

    def has(self, native: Mapping[str, Any]) -> bool:
        """Was a job that remembers this given to this daemon, and has it the same data still?"""
        return native["daemon"] == self.id and native.get("data", "") in ("", *self.data)

    def how_to_recognise(self, native: Mapping[str, Any]) -> str:
        """What to run if the data is that of a job although nothing says so any more."""
        removal = f"docker volume rm {VOLUME} && " if self.data else ""
        names = _SEPARATOR.join((*self.data, native["data"]))
        return f"{removal}docker volume create --label {_LABEL_DATA}={names} {VOLUME}"


class Identity:
    """Of the daemon behind one transport."""

    def __init__(self, transport: DockerClient) -> None:
        self._transport = transport
        self._known: Daemon | None = None

    def known(self) -> Daemon:
        """As we last heard it."""
        if self._known is None:
            self._known = self._describe(self._transport.info["ID"])
        return self._known

    def ask(self) -> Daemon:
        """As it is now: a daemon may come back as another one while we live."""
        self._known = self._describe(self._transport.api.info()["ID"])
        return self._known

    def mark(self) -> None:
        """Have something by which this daemon's data can be told from any other."""
        daemon = self.ask()
        if daemon.data or not _FROM_A_KEY_OF_THE_HOST.fullmatch(daemon.id):
            return
        labels = {config.LABEL: "true", _LABEL_DATA: uuid.uuid4().hex}
        try:
            # Of several clients at once one makes it; the others are given what there is.
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
