"""Platforms: `get(name)` is the way in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tao_sdk.platforms.protocol import ArtifactCleanupSDK, PythonScriptSDK
    from tao_sdk.platforms.registry import get, names
    from tao_sdk.platforms.sdk import PlatformSDK

__all__ = ["ArtifactCleanupSDK", "PlatformSDK", "PythonScriptSDK", "get", "names"]

_HOMES = {
    "ArtifactCleanupSDK": "tao_sdk.platforms.protocol",
    "PlatformSDK": "tao_sdk.platforms.sdk",
    "PythonScriptSDK": "tao_sdk.platforms.protocol",
    "get": "tao_sdk.platforms.registry",
    "names": "tao_sdk.platforms.registry",
}


def __getattr__(name: str) -> Any:
    # Lazy, because every supervisor of a local job imports this package and needs none of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
