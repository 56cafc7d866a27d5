"""DGX Cloud Lepton, played: an HTTP server with the documented endpoints of one workspace.

Its jobs really run, as processes of this machine, each worker in a folder of its own. There are no
containers: images are names. A mount is a folder here, and a variable whose value begins with the
path of a mount is told the folder instead.

Faults are switched on while it runs (`faults`): latency, 429 storms, 503s, answers that are lost
after the deed, lists and logs that are behind. `requests` has every request that came.
"""

from __future__ import annotations

from lab.lepton.faults import Faults
from lab.lepton.server import FORBIDDEN, OTHER_TOKEN, TOKEN, WORKSPACE, LeptonServer
from lab.lepton.state import PlayedJob

__all__ = ["FORBIDDEN", "OTHER_TOKEN", "TOKEN", "WORKSPACE", "Faults", "LeptonServer", "PlayedJob"]
