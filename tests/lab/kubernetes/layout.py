"""Where a cluster keeps what, and how its parts are reached."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from typing import NamedTuple


class Layout(NamedTuple):
    """The folder of a cluster."""

    folder: Path

    @property
    def tag(self) -> str:
        """No other cluster of this machine has it: for names that the whole machine sees."""
        return f"tao-kube-{self.folder.name.rpartition('-')[2]}"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def kubeconfigs(self) -> Path:
        return self.folder / "kubeconfigs"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def state(self) -> Path:
        """The process ids of daemons."""
        return self.folder / "state"

    @property
    def volumes(self) -> Path:
        """The folders behind persistent volumes: this machine and all nodes see them."""
        return self.folder / "volumes"

    def node(self, name: str) -> Path:
        return self.folder / "nodes" / name

    def make(self) -> None:
        places = (self.pki, self.kubeconfigs, self.logs, self.state, self.volumes)
        for place in places:
            place.mkdir(parents=True)


class Endpoints(NamedTuple):
    """Where the daemons of a cluster listen."""

    host: str
    """The address of the API server, and of what else nodes have to reach."""
    api: int
    etcd: int
    etcd_peer: int
    controller_manager: int
    scheduler: int

    @property
    def server(self) -> str:
        return f"https://{self.host}:{self.api}"

    @classmethod
    def choose(cls, host: str) -> Endpoints:
        """Ports that are free now."""
        with contextlib.ExitStack() as held:
            taken = [
                held.enter_context(socket.create_server((address, 0)))
                for address in (host, *["127.0.0.1"] * 4)
            ]
            return cls(host, *(int(one.getsockname()[1]) for one in taken))

    def save(self, layout: Layout) -> None:
        (layout.state / "endpoints.json").write_text(json.dumps(self._asdict()))

    @classmethod
    def load(cls, layout: Layout) -> Endpoints:
        return cls(**json.loads((layout.state / "endpoints.json").read_text()))
