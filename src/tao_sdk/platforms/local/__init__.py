"""The local platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tao_sdk.platforms.local.sdk import LocalSDK

__all__ = ["LocalSDK"]


def __getattr__(name: str) -> Any:
    # Lazy, because every supervisor imports this package and needs none of it.
    if name == "LocalSDK":
        from tao_sdk.platforms.local.sdk import LocalSDK

        return LocalSDK
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
