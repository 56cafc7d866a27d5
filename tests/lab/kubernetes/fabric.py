"""The network of a cluster: a bridge between this machine and the nodes.

The bridge and every node have a network namespace of their own, so the machine's firewall is
neither asked nor changed. The machine has one link into it, with routes to nodes and pods.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from lab.kubernetes.control_plane import API_SERVICE
from lab.kubernetes.layout import Layout
from lab.packages import find

_CLUSTERS = 32
_NAMESPACES = Path("/run/netns")


class Fabric(NamedTuple):
    """The network of one cluster: the `slot`-th of this machine."""

    tag: str
    slot: int

    @property
    def host(self) -> str:
        """The address of this machine in it."""
        return f"10.215.{8 * self.slot}.1"

    @property
    def link(self) -> str:
        """This machine's network interface into it."""
        return _link(self.slot)

    def address(self, number: int) -> str:
        """The address of a node."""
        return f"10.215.{8 * self.slot}.{10 + number}"

    def pods(self, number: int) -> str:
        """The addresses of a node's pods."""
        return f"10.215.{8 * self.slot + 1 + number}.0/24"

    def namespace(self, number: int) -> Path:
        """The network namespace of a node."""
        return _NAMESPACES / f"{self.tag}-{number}"

    @classmethod
    def make(cls, layout: Layout, nodes: int) -> Fabric:
        fabric = cls(layout.tag, _make_bridge(layout.tag))
        (layout.state / "fabric.json").write_text(json.dumps(fabric._asdict()))
        fabric._connect_host()
        for number in range(nodes):
            fabric._connect_node(number)
        for number in range(nodes):
            fabric._add_routes(number, nodes)
        return fabric

    @classmethod
    def load(cls, layout: Layout) -> Fabric:
        return cls(**json.loads((layout.state / "fabric.json").read_text()))

    @staticmethod
    def remove(tag: str) -> None:
        """The kernel removes the links with their namespaces."""
        for namespace in _NAMESPACES.glob(f"{tag}-*"):
            _ip("netns", "del", namespace.name)

    def set_link(self, number: int, state: str) -> None:
        """Pull a node's cable, or put it back."""
        _ip("-n", f"{self.tag}-bridge", "link", "set", f"port{number}", state)

    def allow_api(self, port: int, nodes: int) -> None:
        """Lead the address of the Service `kubernetes` to the API server.

        There is no kube-proxy: the other Services of these tests have no address of their own.
        """
        target = ("-p", "tcp", "--dport", "443", "-j", "DNAT", "--to", f"{self.host}:{port}")
        for number in range(nodes):
            inside = ("nsenter", f"--net={self.namespace(number)}", find("iptables"))
            _run(*inside, "-t", "nat", "-A", "PREROUTING", "-d", API_SERVICE, *target)

    def _connect_host(self) -> None:
        _plug(self.tag, "host")
        _ip("addr", "add", f"{self.host}/24", "dev", self.link)
        _ip("link", "set", self.link, "up")

    def _connect_node(self, number: int) -> None:
        name, port = self.namespace(number).name, f"port{number}"
        _ip("netns", "add", name)
        peer = ("peer", "name", port, "netns", f"{self.tag}-bridge")
        _ip("link", "add", "eth0", "netns", name, "type", "veth", *peer)
        _plug(self.tag, port)
        _ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", name, "link", "set", link, "up")
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _run("nsenter", f"--net={self.namespace(number)}", "sh", "-c", forward)

    def _add_routes(self, number: int, nodes: int) -> None:
        _ip("route", "add", self.pods(number), "via", self.address(number))
        name = self.namespace(number).name
        _ip("-n", name, "route", "add", "default", "via", self.host)
        for other in range(nodes):
            if other != number:
                way = (self.pods(other), "via", self.address(other))
                _ip("-n", name, "route", "add", *way)


def _make_bridge(tag: str) -> int:
    """Make the bridge and the link to it; the first slot whose link nobody has."""
    bridge = f"{tag}-bridge"
    _ip("netns", "add", bridge)
    _ip("-n", bridge, "link", "add", "br0", "type", "bridge")
    _ip("-n", bridge, "link", "set", "br0", "up")
    peer = ("type", "veth", "peer", "name", "host", "netns", bridge)
    for slot in range(_CLUSTERS):
        if _try_ip("link", "add", _link(slot), *peer):
            return slot
    raise AssertionError(f"there are {_CLUSTERS} clusters on this machine")


def _plug(tag: str, port: str) -> None:
    _ip("-n", f"{tag}-bridge", "link", "set", port, "master", "br0", "up")


def _link(slot: int) -> str:
    return f"tao-kube{slot}"


def _ip(*words: str) -> None:
    _run(find("ip"), *words)


def _try_ip(*words: str) -> bool:
    return subprocess.run([find("ip"), *words], capture_output=True, timeout=30).returncode == 0


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
