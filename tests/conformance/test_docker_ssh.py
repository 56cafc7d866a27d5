"""The same suite over ssh://, through sshd and `docker system dial-stdio`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from common_lab import isolated
from docker_lab import DockerLab

from lab.docker import Engine
from lab.docker.images import BUSYBOX, busybox_root, load
from lab.docker.proxy import Proxy
from lab.docker.ssh_server import SshServer, ssh_server
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes
from tao_sdk.platforms.conformance import durability


class RemoteDockerLab(DockerLab):
    """Nothing of the client's machine is the daemon's, as far as the SDK knows."""

    def __init__(self, folder: Path, engine: Engine, server: SshServer) -> None:
        self.server = server
        super().__init__(folder, engine)

    def make_proxy(self) -> Proxy:
        return Proxy("127.0.0.1", ("127.0.0.1", self.server.port))

    @property
    def url(self) -> str:
        return self.server.url(self.proxy.port)

    def variables(self) -> dict[str, str]:
        return {**super().variables(), "PATH": self.server.client_path}

    gpu_key = "GPU-{}"

    @property
    def gpu_image(self) -> str:
        return f"tao-lab/gpus:{self.gpus.replace(',', '-')}"

    def gpu_job(self, job: dict[str, Any], count: int) -> dict[str, Any]:
        """In an image that finds them: the remote host's are those that a probe there lists."""
        rows = [f"echo '{gpu}, GPU-{gpu}, 3, NVIDIA Lab'" for gpu in self.gpus.split(",")]
        program = "\n".join(["#!/bin/sh", *rows, ""]).encode()
        load(self.engine, self.gpu_image, busybox_root({"bin/nvidia-smi": (program, 0o755)}))
        return {**job, "image": self.gpu_image, "gpu_count": count}

    def end_all(self) -> None:
        super().end_all()
        self.engine.docker("rmi", self.gpu_image, check=False)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server", engine) as server:
        yield server


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine, server: SshServer
) -> Iterator[RemoteDockerLab]:
    # The engine's own limits are tried by the suite without ssh; here it is about the way there.
    monkeypatch.setattr(durability, "MANY", 20)
    with isolated(monkeypatch, RemoteDockerLab(tmp_path, engine, server)) as lab:
        yield lab


@pytest.mark.seed("004.1", "004.10")
def test_paths_mean_the_remote_host(lab: RemoteDockerLab) -> None:
    (lab.results / "data").mkdir()
    (lab.results / "data" / "naïve name").touch()
    sdk = lab.sdk()
    assert sdk.check_path(str(lab.results / "data"))
    assert not sdk.check_path(str(lab.results / "nothing"))
    sdk.create_job(image=BUSYBOX, command="true", gpu_count=0).wait(timeout=60)
    assert sdk.list_path(f"file://{lab.results}/data") == ["naïve name"]
