"""A cluster as tests use it: namespaces, and ways from pods to servers of a test."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

from lab.docker.proxy import Proxy
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.namespace import Namespace
from lab.s3 import Bucket, server_url


class KubernetesLab:
    """Gives every test its share of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @contextlib.contextmanager
    def namespace(self) -> Iterator[Namespace]:
        """A namespace that is deleted afterwards."""
        namespace = Namespace(self.cluster, f"lab-{uuid.uuid4().hex[:10]}")
        namespace.open()
        try:
            yield namespace
        finally:
            namespace.close()

    @contextlib.contextmanager
    def reachable(self, url: str) -> Iterator[str]:
        """The URL under which pods reach a server on this machine's loopback."""
        server = urlsplit(url)
        proxy = Proxy(self.cluster.fabric.host, (server.hostname or "", server.port or 80))
        try:
            yield server._replace(netloc=f"{self.cluster.fabric.host}:{proxy.port}").geturl()
        finally:
            proxy.close()

    @contextlib.contextmanager
    def bucket(self, kind: str = "rclone") -> Iterator[Bucket]:
        """An empty bucket; both this process and pods reach it at its URL."""
        with self.reachable(server_url(kind)) as url:
            yield Bucket(kind, url, f"lab-{uuid.uuid4().hex[:12]}")
