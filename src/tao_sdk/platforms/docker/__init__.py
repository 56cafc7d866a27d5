"""The Docker platform: containers on a daemon, local or remote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tao_sdk.platforms.docker.sdk import DockerSDK

__all__ = ["DockerSDK"]


def __getattr__(name: str) -> Any:
    # Lazy, because lease holders import this package and need none of it.
    if name == "DockerSDK":
        from tao_sdk.platforms.docker.sdk import DockerSDK

        return DockerSDK
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
