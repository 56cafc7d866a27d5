"""Results on an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.remote.results import RemoteResults

if TYPE_CHECKING:
    from tao_sdk.platforms.brev.backend import BrevBackend


class BrevResults(RemoteResults):
    """The results of a job in a folder of its instance."""

    def __init__(self, backend: BrevBackend, job: JobRef) -> None:
        name = str(job.native["instance"])
        folder = f"{job.native['results']}/{job.job_id}"
        if why := backend.why_silent(name, "what was not pulled from it went with it"):
            raise BackendUnreachableError(why)
        super().__init__(
            backend.machine(name), job.results_dir, folder, "its user", f"on instance {name}"
        )
        self._backend = backend
        self._job = job

    def all_fetched(self) -> None:
        """The instance is not needed for these results any more."""
        self._backend.results_fetched(self._job)
