"""The SLURM platform: jobs of a cluster, reached over ssh."""

from tao_sdk.platforms.slurm.sdk import SlurmSDK

__all__ = ["SlurmSDK"]
