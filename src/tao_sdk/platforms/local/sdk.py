"""LocalSDK: jobs as processes of this machine. Works with nothing installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tao_sdk import settings
from tao_sdk.job_store.paths import state_paths
from tao_sdk.platforms.local.options import LocalOptions
from tao_sdk.platforms.sdk import PlatformSDK

if TYPE_CHECKING:
    from tao_sdk.job_store import JobStore
    from tao_sdk.platforms.local.backend import LocalBackend


class LocalSDK(PlatformSDK):
    """Launch, watch, explain and stop jobs that are processes of this machine.

    `work_dir` holds the jobs' folders and their results; it defaults to TAO_LOCAL_ROOT or
    `local/` in the state folder.
    """

    platform = "local"
    options_type = LocalOptions
    backend: LocalBackend
    default_workspace = "local"

    def __init__(
        self,
        poll_interval: float = 30,
        epoch_milestone_interval: int = 10,
        state_file: str | Path | None = None,
        *,
        work_dir: str | Path | None = None,
        store: JobStore | None = None,
        attend: bool = True,
    ) -> None:
        super().__init__(
            poll_interval, epoch_milestone_interval, state_file, store=store, attend=attend
        )
        self._work_dir = work_dir

    def _make_backend(self) -> LocalBackend:
        # Loaded with its first use, like everything below this interface.
        from tao_sdk.platforms.local.backend import LocalBackend

        return LocalBackend(self.work_dir)

    @property
    def work_dir(self) -> Path:
        """Where jobs and their results live."""
        chosen = self._work_dir or settings.lookup("TAO_LOCAL_ROOT")
        if chosen:
            return settings.expanded(chosen).absolute()
        return Path(state_paths().database).parent / "local"
