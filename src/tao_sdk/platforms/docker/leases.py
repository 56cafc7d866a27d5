"""GPU leases that live on the daemon, so that jobs of any process and any store share its GPUs.

A lease is a placeholder container `tao-gpu-<GPU>`: its name can be taken once, its labels say for
which job. It is worth as much as that job: once the job's container has ended or is gone, anybody
may remove the placeholder. A lease whose job does not exist yet belongs to somebody who is about
to create it, or who died trying; it counts for a minute.

When the daemon is on this machine, the local platform's leases are taken as well, and kept by a
small process for as long as the container lives (lease_holder.py).
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.placeholders import remove, take_name
from tao_sdk.platforms.docker.states import Census, Container
from tao_sdk.platforms.docker.transport import DockerTransport
from tao_sdk.platforms.gpus.discovery import Gpu
from tao_sdk.platforms.gpus.leases import GpuLeases, release

# How long a lease may be without a container: creating and starting one takes about a second.
TENTATIVE_SECONDS = 60
_PATIENCE_SECONDS = 10


@dataclass
class Lease:
    """GPUs that are ours until `close`, or until the job ends."""

    gpus: list[Gpu]
    placeholders: list[str] = field(default_factory=list)
    descriptors: dict[str, int] = field(default_factory=dict)
    taken_at: float = field(default_factory=lambda: time.clock_gettime(time.CLOCK_BOOTTIME))

    @property
    def age(self) -> float:
        """Seconds since it was taken, those included in which this machine slept."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.taken_at

    def close_descriptors(self) -> None:
        release(self.descriptors)
        self.descriptors = {}


@dataclass(frozen=True)
class Busy:
    """Not enough GPUs are free: who has them."""

    free: int
    holders: tuple[str, ...]


class DaemonLeases:
    """The leases of one daemon."""

    def __init__(
        self,
        transport: DockerTransport,
        census: Callable[[], Census],
        local_folder: str | None,
    ) -> None:
        self._transport = transport
        self._census = census
        self._local_folder = local_folder

    def take(self, job_id: str, gpus: Sequence[Gpu], count: int) -> Lease | Busy:
        """Lease `count` of these GPUs, all or none."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            census = self._census()
            holders = self._holders(census)
            lease = self._take_free(job_id, gpus, count, set(holders))
            if len(lease.gpus) == count:
                return lease
            self.release(lease)
            ours = {gpu.key for gpu in gpus}
            in_the_way = {key: held for key, held in holders.items() if key in ours}
            tentative = [held for held in in_the_way.values() if held.job_id not in census.jobs]
            # Somebody else may be about to give up, exactly as we just did: look again.
            contested = len(ours) - len(in_the_way) >= count or tentative
            if not contested or time.monotonic() > deadline:
                names = sorted({f"tao-job-{held.job_id}" for held in in_the_way.values()})
                return Busy(len(lease.gpus), tuple(names))
            time.sleep(random.uniform(0.02, 0.2))  # noqa: S311 - to fall out of step

    def release(self, lease: Lease) -> None:
        """Give a lease back that no container uses."""
        for placeholder in lease.placeholders:
            remove(self._transport, placeholder)
        lease.close_descriptors()

    def still_held(self, lease: Lease) -> bool:
        """Was nothing of it taken for abandoned?"""
        present = {held.id for held in self._census().leases}
        return present.issuperset(lease.placeholders)

    def holds(self, census: Census) -> dict[str, str]:
        """Which GPU is held for which job, by their keys."""
        return {key: held.job_id for key, held in self._holders(census).items()}

    def _take_free(self, job_id: str, gpus: Sequence[Gpu], count: int, taken: set[str]) -> Lease:
        lease = Lease([])
        for gpu in gpus:
            if len(lease.gpus) == count:
                break
            if gpu.key in taken:
                continue
            with self._local(gpu) as descriptors:
                if descriptors is None:
                    continue
                placeholder = take_name(self._transport, _name(gpu.key), _labels(gpu.key, job_id))
                if placeholder is None:
                    release(descriptors)
                    continue
                lease.gpus.append(gpu)
                lease.placeholders.append(placeholder)
                lease.descriptors.update(descriptors)
        return lease

    @contextlib.contextmanager
    def _local(self, gpu: Gpu) -> Iterator[dict[str, int] | None]:
        """The local platform's lock of that GPU; None when a local job has it or waits for it."""
        if self._local_folder is None:
            yield {}
            return
        yield GpuLeases(self._local_folder).try_take([gpu.key], 1, None) or None

    def _holders(self, census: Census) -> dict[str, Container]:
        """Valid leases by GPU; those that are worth nothing any more are removed."""
        valid: dict[str, Container] = {}
        for lease in census.leases:
            if self._is_valid(lease, census):
                valid[lease.labels[config.LABEL_LEASE]] = lease
            else:
                remove(self._transport, lease.id)
        return valid

    def _is_valid(self, lease: Container, census: Census) -> bool:
        job = census.jobs.get(lease.job_id)
        if job is not None and job.started:
            return not job.ended
        return self.age(lease) < TENTATIVE_SECONDS

    def age(self, lease: Container) -> float:
        """How old a container is, by the clock of its daemon."""
        now = time.time()
        if now - lease.created < TENTATIVE_SECONDS / 2:
            return now - lease.created
        # Old, or our clocks differ: only the daemon's own counts.
        told = self._transport.get("/info")["SystemTime"]
        moment = datetime.fromisoformat(re.sub(r"\.\d+", "", told).replace("Z", "+00:00"))
        return moment.astimezone(timezone.utc).timestamp() - lease.created


def _name(key: str) -> str:
    return "tao-gpu-" + re.sub(r"[^A-Za-z0-9_.-]", "-", key)


def _labels(key: str, job_id: str) -> dict[str, str]:
    return {config.LABEL: "true", config.LABEL_JOB: job_id, config.LABEL_LEASE: key}
