"""The names of Services and of pods behind them, answered over UDP.

`python -m lab.kubernetes.dns ADDRESS KUBECONFIG`. Knows what jobs of several pods need: addresses
of Services, of the pods behind headless ones, and of those pods' own names. All other names are
unknown: nothing outside can be reached from a lab anyway.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from lab.kubernetes.api import Api, Object, RefusedError, name_of

_SERVICES, _SLICES = "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"
_ZONE = "svc.cluster.local"
_ADDRESS, _ANY = 1, 255
_UNKNOWN = 3
_IS_ANSWER = 0x8580
_LIFE_SECONDS = 2


class Names:
    """What the cluster says now about names, kept by watching it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._found: dict[str, dict[str, Object]] = {_SERVICES: {}, _SLICES: {}}
        self._table: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def follow(self) -> None:
        for path in self._found:
            threading.Thread(target=self._follow, args=(path,), daemon=True).start()

    def look_up(self, name: str) -> list[str] | None:
        """The addresses; None for a name that does not exist."""
        with self._lock:
            table = self._table
        known = name in table or any(other.endswith(f".{name}") for other in table)
        return sorted(table.get(name, ())) if known else None

    def _follow(self, path: str) -> None:
        while True:
            # The API server may be away for a while: tests restart it.
            with contextlib.suppress(OSError, http.client.HTTPException, RefusedError):
                listed = self._api.get(path)
                self._take(path, listed["items"], afresh=True)
                for event in self._api.watch(path, listed["metadata"]["resourceVersion"]):
                    if event["type"] == "ERROR":
                        break
                    self._take(path, [event["object"]], gone=event["type"] == "DELETED")
            time.sleep(0.1)

    def _take(
        self, path: str, things: Iterable[Object], *, afresh: bool = False, gone: bool = False
    ) -> None:
        with self._lock:
            if afresh:
                self._found[path].clear()
            for thing in things:
                if gone:
                    self._found[path].pop(thing["metadata"]["uid"], None)
                else:
                    self._found[path][thing["metadata"]["uid"]] = thing
            self._table = make_table(self._found[_SERVICES].values(), self._found[_SLICES].values())


def make_table(services: Iterable[Object], slices: Iterable[Object]) -> dict[str, set[str]]:
    """The addresses of every name."""
    table: dict[str, set[str]] = {}
    headless = set()
    for service in services:
        base = f"{name_of(service)}.{service['metadata']['namespace']}.{_ZONE}"
        address = service["spec"].get("clusterIP", "None")
        if address == "None":
            headless.add(base)
        else:
            table.setdefault(base, set()).add(address)
    for part in slices:
        metadata = part["metadata"]
        of = metadata.get("labels", {}).get("kubernetes.io/service-name")
        base = f"{of}.{metadata['namespace']}.{_ZONE}"
        if base in headless and part["addressType"] == "IPv4":
            for endpoint in part.get("endpoints") or ():
                # A Service that publishes addresses of pods that are not ready calls them ready.
                if endpoint.get("conditions", {}).get("ready") is not False:
                    own = [f"{endpoint['hostname']}.{base}"] if "hostname" in endpoint else []
                    for name in (base, *own):
                        table.setdefault(name, set()).update(endpoint["addresses"])
    return table


def answer(query: bytes, names: Names) -> bytes:
    """The answer to a question; to one about another kind of record, that there is none."""
    position, labels = 12, []
    while length := query[position]:
        labels.append(query[position + 1 : position + 1 + length].decode().lower())
        position += 1 + length
    question = query[12 : position + 5]
    kind = struct.unpack(">H", query[position + 1 : position + 3])[0]
    found = names.look_up(".".join(labels))
    addresses = (found or []) if kind in (_ADDRESS, _ANY) else []
    code = _IS_ANSWER | (_UNKNOWN if found is None else 0)
    head = query[:2] + struct.pack(">HHHHH", code, 1, len(addresses), 0, 0)
    records = (
        b"\xc0\x0c" + struct.pack(">HHIH", _ADDRESS, 1, _LIFE_SECONDS, 4) + socket.inet_aton(one)
        for one in addresses
    )
    return head + question + b"".join(records)


def _serve(address: str, names: Names) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        while True:
            query, asker = server.recvfrom(4096)
            with contextlib.suppress(IndexError, struct.error, UnicodeDecodeError):  # no question
                server.sendto(answer(query, names), asker)


if __name__ == "__main__":
    followed = Names(Api(Path(sys.argv[2])))
    followed.follow()
    _serve(sys.argv[1], followed)
