"""The Kubernetes platform: Jobs of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tao_sdk.platforms.kubernetes.sdk import KubernetesSDK

__all__ = ["KubernetesSDK"]


def __getattr__(name: str) -> Any:
    # Lazy, because the client alone does not need it.
    if name == "KubernetesSDK":
        from tao_sdk.platforms.kubernetes.sdk import KubernetesSDK

        return KubernetesSDK
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
