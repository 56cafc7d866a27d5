"""Results on a cluster, fetched through a login host."""

from __future__ import annotations

from tao_sdk.platforms.remote.results import RemoteResults
from tao_sdk.platforms.slurm.client import SshTransport


class SlurmResults(RemoteResults):
    """The results of a job in a folder of the cluster."""

    def __init__(self, transport: SshTransport, address: str, folder: str) -> None:
        super().__init__(transport, address, folder, transport.login.user, "on the cluster")
