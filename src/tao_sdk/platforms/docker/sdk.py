"""DockerSDK: jobs as containers of a daemon, on this machine or another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from tao_sdk.job_store import JobStore
from tao_sdk.platforms.docker.backend import DockerBackend
from tao_sdk.platforms.docker.endpoint import resolve
from tao_sdk.platforms.docker.images import PullProgress
from tao_sdk.platforms.docker.options import DockerOptions
from tao_sdk.platforms.sdk import PlatformSDK

_log = logging.getLogger("tao_sdk.docker")


class DockerSDK(PlatformSDK):
    """Launch, watch, explain and stop jobs that are containers.

    The daemon is the one that the Docker command line would use (DOCKER_HOST, contexts, TLS), or
    `docker_host`. `on_pull` is called while an image is being pulled.
    """

    platform = "docker"
    options_type = DockerOptions

    def __init__(
        self,
        poll_interval: float = 30,
        epoch_milestone_interval: int = 10,
        state_file: str | Path | None = None,
        *,
        docker_host: str | None = None,
        on_pull: Callable[[PullProgress], None] | None = None,
        store: JobStore | None = None,
        attend: bool = True,
    ) -> None:
        super().__init__(
            poll_interval, epoch_milestone_interval, state_file, store=store, attend=attend
        )
        self._docker_host = docker_host
        self._on_pull = on_pull or _log_progress

    def _make_backend(self) -> DockerBackend:
        return DockerBackend(resolve(self._docker_host), self.store.folder("docker"), self._on_pull)


def _log_progress(progress: PullProgress) -> None:
    _log.info("%s", progress)
