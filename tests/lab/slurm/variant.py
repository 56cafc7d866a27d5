"""How one cluster, or the way into it, differs from another."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class SlurmVariant(NamedTuple):
    """What kind of cluster it is. Tests with equal variants share a cluster."""

    accounting: bool = True
    """slurmdbd on MariaDB; without it `sacct` and `sacctmgr` answer that there is none."""
    pyxis: bool = True
    """`srun` and `sbatch` take --container-image and its companions."""
    enroot: bool = True
    """`enroot` is on the path of every node."""
    enforce_part_limits: bool = True
    """A job over a partition's limits is refused; otherwise it waits for ever."""
    cgroup: bool = True
    """Memory limits are enforced, where this machine lets us (see `cgroups.available`)."""
    keep_finished_seconds: int = 300
    """For how long the controller remembers a job that has ended."""
    node_timeout_seconds: int = 60
    """A node that has not answered for this long is down."""

    @property
    def key(self) -> str:
        """A short name, the same for equal variants."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]


class LoginVariant(NamedTuple):
    """How users get into a cluster."""

    hosts: int = 2
    """Login hosts, at 127.0.0.1, 127.0.0.2 and so on."""
    max_sessions: int = 10
    """Sessions that one connection can have at a time; 10 is sshd's own default."""
    noise: bool = False
    """A banner before the login, and a shell that chatters on both outputs at every start."""
