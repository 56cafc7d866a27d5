"""SLURM defaults of the packaged platform data: partition names and their wall-time limit.

They come from the bank inside this package whichever bank is in use, because they are defaults of
the SDK. The file is read here and not through `tao_sdk.skills`, which lies above the platforms.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

_MANIFEST = "skills/bank/skills/platform/platforms.manifest.json"


class PackagedDefaults(NamedTuple):
    """What the packaged platform data say about SLURM."""

    partition: str = ""
    """Default partitions, by comma; empty lets the cluster choose."""
    limits: Mapping[str, int] = {}
    """Wall-time limits of these partitions in minutes, which clusters do not always report."""


@functools.cache
def packaged_defaults() -> PackagedDefaults:
    """The defaults, read once; none in an installation without a packaged bank."""
    manifest = resources.files("tao_sdk").joinpath(_MANIFEST)
    if not manifest.is_file():
        return PackagedDefaults()
    platforms = json.loads(manifest.read_text(encoding="utf-8"))["platforms"]
    [record] = [record for record in platforms if record["name"] == "slurm"]
    values = record["resource_defaults"]
    minutes = int(values["max_time_hours"] * 60)
    partition = values["partition"]
    return PackagedDefaults(partition, dict.fromkeys(partition.split(","), minutes))
