"""Jobs as containers on instances of NVIDIA Brev, through its command line."""

from tao_sdk.platforms.brev.sdk import BrevSDK

__all__ = ["BrevSDK"]
