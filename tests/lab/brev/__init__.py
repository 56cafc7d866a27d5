"""A cloud like Brev for tests: a `brev` program, and instances that are reached through real ssh.

An instance is a process namespace with a home folder of its own on this machine; its Docker is the
lab's real engine. Deleting, stopping or restarting one ends every process on it and its containers,
as it would with a rented machine. What it has no part in: other kernels, disks, and clouds.
"""

from __future__ import annotations

from lab.brev.cloud import BrevCloud, brev_cloud

__all__ = ["BrevCloud", "brev_cloud"]
