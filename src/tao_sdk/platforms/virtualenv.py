"""The import path that programs use for VirtualEnvSDK."""

from tao_sdk.platforms.local.virtualenv import VirtualEnvSDK

__all__ = ["VirtualEnvSDK"]
