"""SlurmSDK: jobs of a SLURM cluster, over ssh."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tao_sdk.job_store import JobStore, decode
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.platforms.slurm import auth
from tao_sdk.platforms.slurm.backend import SlurmBackend
from tao_sdk.platforms.slurm.cluster_settings import from_environment
from tao_sdk.platforms.slurm.image_cache import Pruned
from tao_sdk.platforms.slurm.image_conversion import ConversionProgress
from tao_sdk.platforms.slurm.options import SlurmOptions
from tao_sdk.secrets import Secret

_log = logging.getLogger("tao_sdk.slurm")


class SlurmSDK(PlatformSDK):
    """Launch, watch, explain and stop jobs of a SLURM cluster.

    The cluster is the one that SLURM_USER and SLURM_HOSTNAME name; they are looked at when the
    first job or question needs them. `on_convert` is called while an image is being converted.
    """

    platform = "slurm"
    options_type = SlurmOptions
    backend: SlurmBackend

    def __init__(
        self,
        poll_interval: float = 30,
        epoch_milestone_interval: int = 10,
        state_file: str | Path | None = None,
        *,
        on_convert: Callable[[ConversionProgress], None] | None = None,
        store: JobStore | None = None,
        attend: bool = True,
    ) -> None:
        super().__init__(
            poll_interval, epoch_milestone_interval, state_file, store=store, attend=attend
        )
        self._on_convert = on_convert or _log_progress

    def _make_backend(self) -> SlurmBackend:
        return SlurmBackend(from_environment(), self._on_convert)

    def install_registry_credentials(
        self,
        registry: str = auth.NGC,
        *,
        username: str = "",
        password: Secret | str | None = None,
    ) -> None:
        """Give the cluster the password of a private registry: NGC_KEY for nvcr.io, else this one.

        It goes to ~/.config/enroot/.credentials there, in place of an older one, and is never
        shown on its way.
        """
        backend = self.backend
        auth.install(backend.transport, registry, username, password)
        backend.images.forget()

    def prune_images(self, keep_days: float = 30) -> Pruned:
        """Remove converted images that no job has used for so many days, and left-overs.

        An image that a job in the queue names stays.
        """
        return self.backend.images.prune(keep_days)

    def get_backend_details(self, job_id: str) -> dict[str, Any]:
        """Where the job is, in the words of TAO's services.

        `slurm_metadata` is there once Slurm has answered with a number of its own.
        """
        row = self._own_row(job_id)
        native = decode(row, "native")
        details = {"backend_type": self.platform, "cluster_name": native["cluster"]}
        if "slurm_job_id" in native:
            names = ("slurm_job_id", "job_dir")
            details["slurm_metadata"] = {name: native[name] for name in names}
        return details


def _log_progress(progress: ConversionProgress) -> None:
    _log.info("%s", progress)
