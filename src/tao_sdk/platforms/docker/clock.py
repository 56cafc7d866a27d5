"""The daemon's own clock: how old something on it is."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from tao_sdk.platforms.docker.transport import DockerTransport


def daemon_time(transport: DockerTransport) -> datetime:
    """What time it is where the daemon runs; ours may differ."""
    told = transport.get("/info")["SystemTime"]
    moment = datetime.fromisoformat(re.sub(r"\.\d+", "", told).replace("Z", "+00:00"))
    return moment.astimezone(timezone.utc)
