"""Real platforms for preflights; each test has a share of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "e2e"))  # for `seed_shell` and `cli_runner`

from lab.docker import Engine
from lab.docker.fixtures import engine
from lab.docker.ssh_server import SshServer, ssh_server
from lab.kubernetes.fixtures import control_plane, played
from lab.slurm.fixtures import shared_slurm, slurm_cluster

__all__ = ["control_plane", "engine", "played", "shared_slurm", "slurm_cluster"]


@pytest.fixture(scope="session")
def ssh_to_engine(tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server", engine) as server:
        yield server
