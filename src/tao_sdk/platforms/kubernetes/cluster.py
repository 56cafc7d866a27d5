"""Facts about a cluster as a whole, asked for when needed and cached."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tao_sdk.errors import BackendUnreachableError, UnsupportedError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.ttl_cache import TtlCache
from tao_sdk.platforms.kubernetes import capacity
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.kinds import Kind
from tao_sdk.platforms.kubernetes.naming import core_path

_T = TypeVar("_T")
Items = list[dict[str, Any]]
# Jobs that are submitted one after the other share a list of the nodes.
_NODES_SECONDS = 10.0
_KUEUE = "/apis/kueue.x-k8s.io"


class Cluster:
    """The cluster behind one connection."""

    def __init__(self, api: KubernetesClient) -> None:
        self._api = api
        self._facts: TtlCache[Any] = TtlCache(math.inf)
        self._load: TtlCache[Items | None] = TtlCache(_NODES_SECONDS)

    def identity(self) -> str:
        """A name of the cluster that does not depend on its address; "" if we may not ask."""
        # By convention the uid of the oldest namespace identifies a cluster.
        return str(self._facts.get("identity", self._ask_identity))

    def elsewhere(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """Why those of the jobs that were given to other clusters are not known to this one."""
        cluster, server = self._ask_identity(), self._api.access.server
        found = {}
        for job in jobs:
            known, former = job.native.get("cluster", ""), job.native["server"]
            if (cluster != known) if cluster and known else (server != former):
                found[job.job_id] = (
                    f"the job was given to another cluster ({former}, context "
                    f"{job.native['context']}); this one is {server}: choose it with "
                    "TAO_K8S_CONTEXT or KUBECONFIG"
                )
        return found

    def require_version(self, major: int, minor: int, what: str) -> None:
        """Raise `UnsupportedError` if the server is older than that."""
        answer = self._facts.get("version", lambda: self._api.get("/version"))
        found = tuple(
            int(re.sub(r"\D.*", "", str(answer.get(part, "0"))) or 0) for part in ("major", "minor")
        )
        if found < (major, minor):
            raise UnsupportedError(
                f"{what} needs Kubernetes {major}.{minor} or newer, and this cluster has "
                f"{answer.get('gitVersion', '.'.join(map(str, found)))}"
            )

    def nodes(self) -> Items | None:
        """All nodes; None if we may not list them."""
        return self._load.get("nodes", lambda: self._list("/api/v1/nodes"))

    def adds_nodes(self, nodes: Items) -> bool:
        """Whether an autoscaler adds nodes for pods that fit on none."""
        status = core_path("kube-system", "configmaps", "cluster-autoscaler-status")
        return capacity.adds_nodes(nodes) or bool(self._allowed(lambda: self._api.get(status)))

    def serves(self, kind: Kind) -> bool:
        """Whether the API has objects of this kind."""
        path = f"/apis/{kind.api_version}"
        found = self._facts.get(path, lambda: self._allowed(lambda: self._api.get(path)) or {})
        return any(one["name"] == kind.resource for one in found.get("resources") or ())

    def kueue_version(self) -> str:
        """The version of Kueue's API, such as `v1beta1`; "" without Kueue."""
        found = self._facts.get("kueue", lambda: self._allowed(lambda: self._api.get(_KUEUE)) or {})
        return str(found.get("preferredVersion", {}).get("version", ""))

    def waiting_reasons(self, namespace: str) -> dict[str, str]:
        """Why Kueue has not admitted Jobs, by their uids."""
        path = f"{_KUEUE}/{self.kueue_version()}/namespaces/{namespace}/workloads"
        reasons = {}
        for workload in self._list(path) or ():
            for condition in (workload.get("status") or {}).get("conditions") or ():
                if condition["type"] == "QuotaReserved" and condition["status"] == "False":
                    for owner in workload["metadata"].get("ownerReferences") or ():
                        reasons[owner["uid"]] = str(condition.get("message") or "")
        return reasons

    def _ask_identity(self) -> str:
        found = self._allowed(lambda: self._api.get("/api/v1/namespaces/kube-system"))
        return str(found["metadata"]["uid"]) if found else ""

    def _list(self, path: str) -> Items | None:
        return self._allowed(lambda: self._api.list_all(path).items)

    def _allowed(self, ask: Callable[[], _T]) -> _T | None:
        """The answer; None if we may not ask, or there is no such object."""
        try:
            return ask()
        except ApiError as error:
            if error.forbidden or error.missing:
                return None
            raise BackendUnreachableError(
                f"the cluster at {self._api.access.server} refuses {error.call}: {error.message}"
            ) from error
