"""KubernetesSDK: jobs of a Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tao_sdk.platforms.kubernetes.options import KubernetesOptions
from tao_sdk.platforms.sdk import PlatformSDK

# Loaded by the first call that needs them: they import urllib3 and ssl.
if TYPE_CHECKING:
    from tao_sdk.job_store import JobStore
    from tao_sdk.platforms.kubernetes.backend import KubernetesBackend


class KubernetesSDK(PlatformSDK):
    """Launch, watch, explain and stop jobs that are Jobs of Kubernetes.

    The cluster is the one that kubectl would use (KUBECONFIG, contexts), or the one that this
    program runs in; `context` or TAO_K8S_CONTEXT choose another.
    """

    platform = "kubernetes"
    options_type = KubernetesOptions
    backend: KubernetesBackend

    def __init__(
        self,
        poll_interval: float = 30,
        epoch_milestone_interval: int = 10,
        state_file: str | Path | None = None,
        *,
        context: str | None = None,
        store: JobStore | None = None,
        attend: bool = True,
    ) -> None:
        super().__init__(
            poll_interval, epoch_milestone_interval, state_file, store=store, attend=attend
        )
        self._context = context

    def get_available_instances(self) -> dict[str, int]:
        """The number of all GPUs that the cluster's nodes offer."""
        return {"total_nvidia_gpus": self.backend.total_gpus()}

    def _make_backend(self) -> KubernetesBackend:
        from tao_sdk.platforms.kubernetes.auth import ClusterAccess
        from tao_sdk.platforms.kubernetes.backend import KubernetesBackend

        return KubernetesBackend(ClusterAccess.find(self._context), self.store.folder("kubernetes"))
