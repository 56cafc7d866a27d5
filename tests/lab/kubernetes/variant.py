"""How one cluster differs from another."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class KubeVariant(NamedTuple):
    """What kind of cluster it is. Tests with equal variants share a cluster."""

    nodes: int = 0
    """Real nodes; without any, a test plays them (see `FakeNodes`)."""
    gpus_per_node: int = 8
    """GPUs that a real node says it has; containers see nothing of them."""
    node_grace_seconds: int = 50
    """A real node that has been silent for this long is not ready."""
    lease_seconds: int = 40
    """For how long a node's sign of life holds."""
    eviction_seconds: int = 300
    """Pods stay this long on a node that is not ready or cannot be reached."""

    extended: bool = False
    """With the kinds of JobSet, Trainer and Volcano; see `extensions`."""

    @property
    def key(self) -> str:
        """A short name, the same for equal variants."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]


CONTROL_PLANE = KubeVariant()
"""Everything decides for real, nothing runs."""
WITH_NODES = KubeVariant(nodes=2)
"""Pods really run."""
EXTENDED = KubeVariant(nodes=2, extended=True)
"""The same with other kinds of jobs."""
QUICK_TO_GIVE_UP = KubeVariant(nodes=2, node_grace_seconds=8, lease_seconds=8, eviction_seconds=2)
"""The same; the loss of a node shows in half a minute, not in six."""
