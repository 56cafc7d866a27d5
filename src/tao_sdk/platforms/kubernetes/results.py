"""Results and records of jobs on volumes, which only pods can reach.

A look takes a Job of some seconds (`volume_probe.py`). Many jobs may vanish together (their time to
live is over), so one Job reads the records of all on the same volume, and they are cached for a
moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tao_sdk.errors import UnsupportedError
from tao_sdk.platforms import volume_programs
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.common.ttl_cache import TtlCache
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import KubernetesClient
from tao_sdk.platforms.kubernetes.observe import list_pods
from tao_sdk.platforms.kubernetes.pods import node_of, phase_of
from tao_sdk.platforms.kubernetes.volume_probe import RECORDS, REMOVE, VolumeProbe, is_on_nodes
from tao_sdk.platforms.kubernetes.volumes import Place, parse_place
from tao_sdk.result_record import ResultRecord

if TYPE_CHECKING:
    from tao_sdk.platforms.kubernetes.volume_reader import VolumeReader
    from tao_sdk.results import ResultSource

_CACHE_SECONDS = 15.0


class JobResults:
    """Results of the jobs of one store, in one cluster."""

    def __init__(self, client: KubernetesClient, probe: VolumeProbe, files: JobFiles) -> None:
        self._client = client
        self._probe = probe
        self._files = files
        self._vanished: dict[str, JobRef] = {}
        self._records: TtlCache[list[ResultRecord]] = TtlCache(_CACHE_SECONDS)
        self._readers: list[VolumeReader] = []

    def close(self) -> None:
        """Remove the pods that read volumes."""
        for reader in self._readers:
            reader.close()

    def note_vanished(self, jobs: Iterable[JobRef]) -> None:
        """These jobs are not in the cluster: their records will be asked for, one by one."""
        self._vanished = {job.job_id: job for job in jobs if job.native["results"]}

    def records(self, job: JobRef) -> list[ResultRecord]:
        """The records of a job, by rank."""
        if not job.native["results"]:
            return []
        if job.job_id not in self._vanished:
            return self._read_records([job])[job.job_id]
        if not self._records.has(job.job_id):
            together = [
                other
                for other in self._vanished.values()
                if _volume(other) == _volume(job) and not self._records.has(other.job_id)
            ]
            for job_id, records in self._read_records(together).items():
                self._records.put(job_id, records)
        return self._records.get(job.job_id, lambda: self._read_records([job])[job.job_id])

    def sizes(self, job: JobRef) -> dict[str, int]:
        """The sizes of a job's result files, by their relative paths."""
        found: dict[str, int] = {}
        if job.native["results"]:
            for answer in self._run(job, volume_programs.FILES):
                found |= volume_programs.parse_files(answer)
        return found

    def source(self, job: JobRef) -> ResultSource | None:
        """A source to fetch a job's results from; None if they are on no volume."""
        from tao_sdk.platforms.kubernetes.volume_reader import VolumeReader, VolumeResults

        if not job.native["results"]:
            return None
        namespace, template = job.native["namespace"], job.native["pod"]
        node = self._node_to_read_on(job)
        reader = VolumeReader(self._client, namespace, _place(job), template, node)
        self._readers.append(reader)
        return VolumeResults(reader, job)

    def remove(self, job: JobRef) -> bool:
        """Delete a job's results; False if some may be left."""
        if not job.native["results"]:
            return True
        # If the nodes are unknown, results that are absent may be on another node.
        is_known = not is_on_nodes(job) or bool(self._nodes_of(job))
        return all(
            "removed" in answer and (is_known or "absent" not in answer)
            for answer in self._run(job, REMOVE)
        )

    def _run(self, job: JobRef, program: str) -> list[str]:
        """The output of a program beside the results: of one pod, or one on each of their nodes."""
        where = job.native["namespace"], _place(job), program, job.native["pod"]
        return [self._probe.run(*where, node=node) for node in self._nodes_of(job) or [""]]

    def _read_records(self, jobs: list[JobRef]) -> dict[str, list[ResultRecord]]:
        native = jobs[0].native
        folders = " ".join(job.job_id for job in jobs)
        place = parse_place("results", native["results"])
        where = native["namespace"], place, RECORDS, native["pod"], folders
        nodes = {node for job in jobs for node in self._nodes_of(job) or [""]}
        text = "\n".join(self._probe.run(*where, node) for node in sorted(nodes))
        found = {}
        for job in jobs:
            parsed = (ResultRecord.parse(line, job.job_id) for line in text.splitlines())
            found[job.job_id] = sorted(filter(None, parsed), key=lambda record: record.rank)
        return found

    def _nodes_of(self, job: JobRef) -> list[str]:
        """The nodes whose folders have its results, if they are in such and the nodes are known."""
        if not is_on_nodes(job):
            return []
        path = self._files.path(job.job_id, naming.NODES_FILE)
        known = path.read_text(encoding="utf-8").split() if path.exists() else []
        return known or sorted({node_of(pod) for pod in list_pods(self._client, job)} - {""})

    def _node_to_read_on(self, job: JobRef) -> str:
        """The node that must read the results; "" for any."""
        if is_on_nodes(job):
            nodes = self._nodes_of(job)
            if len(nodes) > 1:
                raise UnsupportedError(
                    f"the results are in folders of {len(nodes)} nodes ({', '.join(nodes)}): pull "
                    "reads one folder; give jobs on several nodes a volume that they share"
                )
            return "".join(nodes)
        # Some volumes can be attached to one node only: the one that the job uses now.
        running = [pod for pod in list_pods(self._client, job) if phase_of(pod) == "Running"]
        return node_of(running[0]) if running else ""


def _place(job: JobRef) -> Place:
    return parse_place("results", job.native["results"]).below(job.job_id)


def _volume(job: JobRef) -> tuple[str, str]:
    return job.native["namespace"], job.native["results"]
