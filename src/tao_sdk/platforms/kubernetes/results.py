"""Results on a volume that only pods see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tao_sdk.errors import TaoError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.kubernetes.volume_reader import VolumeReader
from tao_sdk.platforms.remote.results import RemoteResults
from tao_sdk.results.sources import Entry


class VolumeResults(RemoteResults):
    """The results of a job, read by a pod beside them."""

    def __init__(self, reader: VolumeReader, job: JobRef) -> None:
        super().__init__(reader, job.results_dir, reader.folder, "the user of its pods", "there")
        self._pod = reader

    def entries(self) -> Iterator[Entry]:
        try:
            yield from super().entries()
        except TaoError:
            self._pod.close()
            raise

    def holds(self, folder: Path) -> bool:  # noqa: ARG002 - a volume has no path on this machine
        return False

    def all_fetched(self) -> None:
        self._pod.close()
