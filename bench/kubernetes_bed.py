"""What the Kubernetes cases stand on: a cluster of their own without nodes.

The control plane is a real one. On nodes that are only played, no pod runs anything, so that no
job's own work is in a figure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bench.transfer_servers import Server, at_a_distance

if TYPE_CHECKING:
    from lab.kubernetes import Namespace

_PODS_PER_NODE = 110
_LONGEST_SECONDS = 600
# What somebody who polls would ask for; the cluster's own daemons watch these.
_ASKED_FOR = re.compile(
    r'apiserver_request_total\{(?=.*resource="(?:jobs|pods|events)")(?=.*verb="(?:GET|LIST)").*\} '
)


@dataclass(frozen=True)
class Bed:
    """A namespace of a cluster, or why there is none."""

    namespace: Namespace | None = None
    absent: str = ""
    kubeconfig: Path | None = None
    """Another way to the cluster than the straight one."""

    @property
    def variables(self) -> dict[str, str]:
        """By which a contender finds it, as a user who may do there what users may."""
        if self.namespace is None:
            return {}
        return {
            "KUBECONFIG": str(self.kubeconfig or self.namespace.kubeconfig()),
            "TAO_K8S_NAMESPACE": self.namespace.name,
        }

    @contextmanager
    def from_afar(self, seconds: float, folder: Path) -> Iterator[Bed]:
        """The same cluster, with so many seconds added to each request."""
        if self.namespace is None:
            yield self
            return
        near = Server(self.namespace.cluster.endpoints.server)
        with at_a_distance(near, seconds, folder) as proxy:
            known = self.namespace.kubeconfig().read_text(encoding="utf-8")
            way = folder / "kubeconfig-afar"
            way.touch(mode=0o600)
            port = urlsplit(proxy.url).port
            way.write_text(known.replace(near.url, f"https://127.0.0.1:{port}"), encoding="utf-8")
            yield replace(self, kubeconfig=way)

    def leave_jobs_alone(self) -> None:
        """From now on nobody makes pods of Jobs or looks for nodes: the machine is ours."""
        assert self.namespace is not None
        for daemon in ("kube-controller-manager", "kube-scheduler"):
            self.namespace.cluster.stop(daemon)

    def wait_until_refused(self, count: int) -> None:
        """Wait until there are so many pods and the scheduler has said that no node takes them."""
        from lab.processes import wait_until

        assert self.namespace is not None
        pods = self.namespace.pods
        wait_until(
            lambda: sum(map(_is_unschedulable, pods())) == count,
            f"not all of {count} pods wait for a node",
            _LONGEST_SECONDS,
        )

    def add_nodes(self, jobs: int) -> None:
        """Enough of them for so many pods."""
        assert self.namespace is not None
        for number in range(-(-jobs // _PODS_PER_NODE)):
            self.namespace.nodes.add(f"node{number}", cpu="1k")

    def start_pods(self, count: int) -> None:
        """Say of so many pods that they run, and wait until their Jobs know it."""
        from lab.processes import wait_until

        namespace = self.namespace
        assert namespace is not None

        def are_put_on_nodes() -> bool:
            return sum("nodeName" in pod["spec"] for pod in namespace.pods()) == count

        wait_until(are_put_on_nodes, f"{count} pods are not put on nodes", _LONGEST_SECONDS)
        for pod in namespace.pods():
            namespace.nodes.start(pod)

        def are_ready() -> bool:
            jobs = namespace.api.get(namespace.jobs)["items"]
            return sum(int(job["status"].get("ready", 0)) for job in jobs) == count

        wait_until(are_ready, f"{count} Jobs do not hear of their pods", _LONGEST_SECONDS)

    def reads(self) -> float:
        """How often Jobs, pods and events were asked for so far, as the API server counts it."""
        assert self.namespace is not None
        return reads_in(self.namespace.api.text("/metrics"))


def reads_in(metrics: str) -> float:
    """The requests to get or list Jobs, pods and events; a watch is neither."""
    lines = metrics.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if _ASKED_FOR.match(line))


@contextmanager
def kubernetes_bed() -> Iterator[Bed]:
    """A cluster that nobody else uses; without the test lab nobody takes part."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    with ExitStack() as ending:
        try:
            import pytest

            from lab.kubernetes import CONTROL_PLANE, Namespace, private_cluster
        except ImportError as error:
            yield Bed(absent=f"the test lab cannot be loaded: {error}")
            return
        try:
            cluster = ending.enter_context(private_cluster(CONTROL_PLANE))
        except pytest.skip.Exception as skipped:
            yield Bed(absent=str(skipped))
            return
        namespace = Namespace(cluster, "bench")
        namespace.open()  # and never closed: it goes with the cluster
        yield Bed(namespace)


def _is_unschedulable(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one.get("reason") == "Unschedulable" for one in conditions)
