"""The Lepton platform: jobs of a workspace of DGX Cloud Lepton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tao_sdk.platforms.lepton.sdk import LeptonSDK

__all__ = ["LeptonSDK"]


def __getattr__(name: str) -> Any:
    # On first use, because preflight needs the client alone.
    if name == "LeptonSDK":
        from tao_sdk.platforms.lepton.sdk import LeptonSDK

        return LeptonSDK
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
