"""The records that jobs left beside their results on volumes.

Reading takes a Job, some seconds. Many jobs may vanish together (their time to live is over), so
one Job reads the records of all on the same volume, and they are cached for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.kubernetes.volume_probe import RECORDS, VolumeProbe
from tao_sdk.platforms.kubernetes.volumes import parse_place
from tao_sdk.result_record import ResultRecord

_CACHE_SECONDS = 15.0


class Records:
    """Records on the volumes of one cluster."""

    def __init__(self, probe: VolumeProbe, nodes_of: Callable[[JobRef], Sequence[str]]) -> None:
        self._probe = probe
        self._nodes_of = nodes_of
        """If the volume is a folder of nodes: those that a job ran on."""
        self._vanished: dict[str, JobRef] = {}
        self._read: dict[str, tuple[float, list[ResultRecord]]] = {}

    def will_be_asked(self, vanished: Iterable[JobRef]) -> None:
        """Expect questions about these jobs, which the cluster does not know (any more)."""
        now = time.monotonic()
        self._read = {
            job_id: read for job_id, read in self._read.items() if now - read[0] < _CACHE_SECONDS
        }
        self._vanished = {job.job_id: job for job in vanished if job.native["results"]}

    def of(self, job: JobRef) -> list[ResultRecord]:
        """The records of a job, by rank."""
        if job.job_id not in self._vanished:
            return self._ask([job])[job.job_id]
        if job.job_id not in self._read:
            together = [
                other
                for other in self._vanished.values()
                if _volume(other) == _volume(job) and other.job_id not in self._read
            ]
            now = time.monotonic()
            for job_id, records in self._ask(together).items():
                self._read[job_id] = now, records
        return self._read[job.job_id][1]

    def _ask(self, jobs: list[JobRef]) -> dict[str, list[ResultRecord]]:
        native = jobs[0].native
        place = parse_place("results", native["results"])
        words = " ".join(job.job_id for job in jobs)
        where = native["namespace"], place, RECORDS, native["pod"], words
        nodes = {node for job in jobs for node in self._nodes_of(job) or [""]}
        text = "\n".join(self._probe.run(*where, node) for node in sorted(nodes))
        found = {}
        for job in jobs:
            parsed = (ResultRecord.parse(line, job.job_id) for line in text.splitlines())
            found[job.job_id] = sorted(filter(None, parsed), key=lambda record: record.rank)
        return found


def _volume(job: JobRef) -> tuple[str, str]:
    return job.native["namespace"], job.native["results"]
