"""The daemon's own clock: how old something on it is."""

from __future__ import annotations

from datetime import datetime

from tao_sdk.platforms.common.times import parse_time
from tao_sdk.platforms.docker.transport import DockerTransport


def daemon_time(transport: DockerTransport) -> datetime:
    """What time it is where the daemon runs; ours may differ."""
    return parse_time(transport.get("/info")["SystemTime"])
