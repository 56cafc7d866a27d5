"""A real Docker engine for tests: private, shared by all test processes, ended by the last one.

It lives in a folder of its own and touches no daemon that the machine already has: other socket,
other storage, no default bridge, no firewall rules. Images are made on the spot, so no public
registry is needed. GPUs are pretended by a stub of NVIDIA's hook: the engine takes `--gpus` as on
a GPU machine, and containers see what they were given.
"""

from __future__ import annotations

from lab.docker.engine import Engine
from lab.docker.sharing import private_engine, shared_engine

__all__ = ["Engine", "private_engine", "shared_engine"]
