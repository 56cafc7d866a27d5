"""Clusters of Kubernetes that test processes share, or have for themselves."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from lab import sharing, unavailable
from lab.kubernetes import cgroups, extensions, images, node, programs
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.variant import CONTROL_PLANE, KubeVariant
from lab.packages import provide

_PROGRAMS = ("containerd", "runc", "iptables", "ip", "busybox", "nsenter", str(node.CNI / "bridge"))
_PACKAGES = (
    *("containerd", "runc", "iptables", "iproute2", "busybox-static", "util-linux"),
    "containernetworking-plugins",
)


@contextlib.contextmanager
def shared_cluster(variant: KubeVariant = CONTROL_PLANE, name: str = "tests") -> Iterator[Cluster]:
    """The cluster of this kind that all test processes of this machine share."""
    _provide_programs(variant)
    label = f"{name}-{variant.key}"
    if variant.nodes:  # nodes that another checkout started may lack our images
        label += images.provide().name.removeprefix("images")
    with sharing.shared(__name__, label, lambda folder: Cluster(folder, variant)) as cluster:
        yield cluster


@contextlib.contextmanager
def private_cluster(variant: KubeVariant = CONTROL_PLANE) -> Iterator[Cluster]:
    """A cluster for one test, which may do with it what it likes."""
    _provide_programs(variant)
    with sharing.private(__name__, lambda folder: Cluster(folder, variant)) as cluster:
        yield cluster


def cluster_in(folder: Path) -> Cluster:
    """The one that is there, of whatever variant, to be ended."""
    return Cluster(folder, CONTROL_PLANE)


def _provide_programs(variant: KubeVariant) -> None:
    if variant.nodes:
        _provide_for_nodes()
    programs.provide(nodes=bool(variant.nodes))
    if variant.extended:
        extensions.provide()


def _provide_for_nodes() -> None:
    if os.geteuid() != 0:
        unavailable("kubernetes", "real nodes need root", "run the tests as root")
    probe = ["unshare", "--mount", "--net", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if subprocess.run(probe, capture_output=True, timeout=30).returncode != 0:
        unavailable("kubernetes", "root may not mount here", "run the tests with CAP_SYS_ADMIN")
    if not cgroups.available():
        reason = "no control groups of version 1 that can be written"
        unavailable("kubernetes", reason, "run the tests on a machine that has them")
    provide(_PROGRAMS, _PACKAGES, "kubernetes")
    images.provide()
