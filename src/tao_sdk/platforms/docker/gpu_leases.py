"""GPU leases on the daemon, so that jobs of any process and any store share its GPUs.

A job's container names its GPUs in its labels, and has them while it lives. Until that container
exists, placeholder containers `tao-gpu-<GPU>` hold the GPUs: such a name can be taken once. A
placeholder without its job's container counts for a minute: the process that made it is about to
create the container, or has died. Placeholders stay while the job runs, so that a process whose
list of containers is older than the job's container finds the names taken; once the job has ended,
any process may remove them. `docker container prune` removes them, too. So a job starts only if
its placeholders were still there when its container had been made, and if no other living job's
container names its GPUs.

If the daemon is on this machine, the leases of the local platform are taken as well: local jobs
know only those. They are file locks, which need a process: lease_holder.py is one that lives as
long as the container. If it is killed, an attending process starts another one.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.docker import config, lease_holder
from tao_sdk.platforms.docker.client import DockerClient
from tao_sdk.platforms.docker.gpus import keys_given, names_given
from tao_sdk.platforms.docker.placeholders import remove, take_name, withdraw
from tao_sdk.platforms.docker.status import LIVE_STATES, Census, Container
from tao_sdk.platforms.gpus.discovery import Gpu
from tao_sdk.platforms.gpus.lease_folder import LeasesUnavailableError
from tao_sdk.platforms.gpus.leases import GpuLease, GpuLeases, look_for_free

_log = logging.getLogger("tao_sdk.docker")
# How long a lease may be without a container: creating and starting one takes about a second.
TENTATIVE_SECONDS = 60
_PATIENCE_SECONDS = 10


@dataclass
class Lease:
    """GPUs for one job, held by placeholders and, beside a local daemon, by file locks."""

    job_id: str
    gpus: list[Gpu] = field(default_factory=list)
    placeholders: list[str] = field(default_factory=list)
    locks: list[GpuLease] = field(default_factory=list)

    @property
    def descriptors(self) -> list[int]:
        return [descriptor for lock in self.locks for descriptor in lock.descriptors]

    def close_descriptors(self) -> None:
        for lock in self.locks:
            lock.release()


@dataclass(frozen=True)
class Busy:
    """Not enough GPUs are free, and which jobs have the others."""

    free: int
    holders: tuple[str, ...]


class DaemonLeases:
    """The leases of one daemon."""

    def __init__(self, transport: DockerClient, local_folder: str | None) -> None:
        """`local_folder`, as in TAO_GPU_LEASE_DIR, if the daemon is on this machine."""
        self._transport = transport
        self._local_folder = local_folder
        self._lock_refused: set[str] = set()

    def take(
        self,
        job_id: str,
        gpus: Sequence[Gpu],
        count: int,
        census: Census | None = None,
        patience: float = _PATIENCE_SECONDS,
    ) -> Lease | Busy:
        """Lease `count` of these GPUs, all or none. `census` is fresh, if it is given.

        `patience` is how long to try while other processes may be about to give up.
        """
        deadline = time.monotonic() + patience
        while True:
            census = census or self._transport.census()
            holders = self._holders(census, gpus, tidy=True)
            lease = self._take_free(job_id, [gpu for gpu in gpus if gpu.key not in holders], count)
            if len(lease.gpus) == count:
                return lease
            self.release(lease)
            # Another process may be about to give up, exactly as this one just did: try again.
            tentative = any(holder.job_id not in census.jobs for holder in holders.values())
            contested = tentative or len(gpus) - len(holders) >= count
            if not contested or time.monotonic() > deadline:
                names = sorted({f"tao-job-{holder.job_id}" for holder in holders.values()})
                return Busy(len(lease.gpus), tuple(names))
            time.sleep(random.uniform(0.02, 0.2))  # noqa: S311 - to fall out of step
            census = None

    def release(self, lease: Lease) -> None:
        """Give back a lease that no container uses."""
        for placeholder in lease.placeholders:
            remove(self._transport, placeholder)
        lease.close_descriptors()

    def release_all(self, job_id: str, census: Census) -> None:
        """Remove the placeholders of a job that does not run."""
        for lease in census.leases_of(job_id):
            remove(self._transport, lease.id)

    def still_held(self, lease: Lease) -> bool:
        """Whether no placeholder was pruned, or removed as abandoned because we were too slow.

        Asked when the job's container exists: from then on its labels hold the GPUs. So of two jobs
        that took the same GPU, one after a prune and with an old list, at least one sees the other.
        """
        census = self._transport.census()
        present = {held.id for held in census.leases_of(lease.job_id)}
        others = [job for job in census.jobs.values() if job.job_id != lease.job_id]
        alive = [job for job in others if job.state == "created" or job.state in LIVE_STATES]
        shared = any(_held_by(job, lease.gpus) for job in alive)
        return present.issuperset(lease.placeholders) and not shared

    def look(self, census: Census, gpus: Sequence[Gpu]) -> dict[str, str]:
        """Which of these GPUs are held, by key: the job's id, or "" for a local job.

        Looks only: what it sees may change before a lease is taken.
        """
        keys = [gpu.key for gpu in gpus]
        held = dict.fromkeys(set(keys).difference(self._unlocked(keys)), "")
        holders = self._holders(census, gpus, tidy=False)
        return held | {key: holder.job_id for key, holder in holders.items()}

    def lacks_lock(self, job: Container) -> bool:
        """Whether `lock_again` has something to do for this job."""
        keys = keys_given(job.labels) if job.state in LIVE_STATES else []
        lockable = self._local_folder is not None and job.id not in self._lock_refused
        return bool(keys) and lockable and bool(self._unlocked(keys))

    def lock_again(self, job: Container) -> None:
        """Take the file locks of a running job whose holder was killed, where they are free."""
        keys = keys_given(job.labels) if job.state in LIVE_STATES else []
        if not keys or self._local_folder is None or job.id in self._lock_refused:
            return
        try:
            locks = GpuLeases(self._local_folder).retake(keys)
        except LeasesUnavailableError as error:
            self._lock_refused.add(job.id)  # one warning is enough
            _log.warning("the GPUs of %s cannot be locked for local jobs: %s", job.name, error)
            return
        if locks is None:
            return
        try:
            with self.locked_until_end(job.id, locks.descriptors):
                pass
        finally:
            locks.release()

    @contextlib.contextmanager
    def locked_until_end(self, container: str, locks: Sequence[int]) -> Iterator[None]:
        """Start a holder of these locked files before the container is started."""
        if not locks:
            yield
            return
        path = self._transport.endpoint.url.removeprefix("unix://")
        holder = lease_holder.start(path, container, locks)
        try:
            yield
        finally:
            if code := holder.wait():
                _log.warning(
                    "the GPUs of container %s are not locked for local jobs: the process that "
                    "should hold them ended with %s",
                    container,
                    code,
                )

    def age(self, container: Container) -> float:
        """How old a container is, by the clock of its daemon."""
        age = time.time() - container.created
        if 0 <= age < TENTATIVE_SECONDS / 2:
            return age
        # Old, or the clocks differ: only the daemon's clock counts.
        return self._transport.time().timestamp() - container.created

    def _unlocked(self, keys: Sequence[str]) -> list[str]:
        """Which of these GPUs no local job has, as far as this process may see."""
        if self._local_folder is None:
            return list(keys)
        try:
            return look_for_free(self._local_folder, keys)
        except LeasesUnavailableError:
            return list(keys)

    def _take_free(self, job_id: str, gpus: Sequence[Gpu], count: int) -> Lease:
        lease = Lease(job_id)
        try:
            for gpu in gpus:
                if len(lease.gpus) < count:
                    self._take_one(lease, gpu)
        except BaseException:
            lease.close_descriptors()
            raise
        return lease

    def _take_one(self, lease: Lease, gpu: Gpu) -> None:
        """Add a GPU to a lease, unless another job has it."""
        if not self._lock(lease, gpu):
            return
        labels = {
            config.LABEL: "true",
            config.LABEL_JOB: lease.job_id,
            config.LABEL_LEASE: gpu.key,
            config.LABEL_GPUS: gpu.index,
        }
        name = "tao-gpu-" + re.sub(r"[^A-Za-z0-9_.-]", "-", gpu.key)
        placeholder = take_name(self._transport, name, labels)
        if placeholder is None:
            if self._local_folder is not None:
                lease.locks.pop().release()
            return
        lease.gpus.append(gpu)
        lease.placeholders.append(placeholder)

    def _lock(self, lease: Lease, gpu: Gpu) -> bool:
        """Take the local platform's lock of that GPU; False if a local job has it or waits for it.

        Nothing to do for a daemon elsewhere.
        """
        if self._local_folder is None:
            return True
        try:
            lock = GpuLeases(self._local_folder).try_take([gpu.key], 1, None)
        except LeasesUnavailableError as error:
            raise SubmissionRejectedError(
                f"GPUs cannot be leased (TAO_GPU_LEASE_DIR): {error}"
            ) from error
        if lock is not None:
            lease.locks.append(lock)
        return lock is not None

    def _holders(self, census: Census, gpus: Sequence[Gpu], *, tidy: bool) -> dict[str, Container]:
        """The placeholders and job containers that hold these GPUs, by key.

        `tidy` removes those whose makers have died, and takes lost file locks again.
        """
        holders: dict[str, Container] = {}
        for lease in census.leases:
            held = _held_by(lease, gpus)
            if held and self._is_valid(lease, census):
                holders.update(dict.fromkeys(held, lease))
            elif held and tidy:
                remove(self._transport, lease.id)
        for job in census.jobs.values():
            held = _held_by(job, gpus)
            if held and self._occupies(job, tidy=tidy):
                holders.update(dict.fromkeys(held, job))
                if tidy:
                    self.lock_again(job)
        return holders

    def _is_valid(self, lease: Container, census: Census) -> bool:
        job = census.jobs.get(lease.job_id)
        if job is not None and job.started:
            return not job.ended
        return self.age(lease) < TENTATIVE_SECONDS

    def _occupies(self, job: Container, *, tidy: bool) -> bool:
        if job.state != "created":
            return job.state in LIVE_STATES
        if self.age(job) < TENTATIVE_SECONDS:
            return True
        # Its maker has died, or is slow: a container that was taken back cannot start any more.
        return tidy and not withdraw(self._transport, job.id)


def _held_by(holder: Container, gpus: Sequence[Gpu]) -> list[str]:
    """The keys of those of these GPUs that a job's container or a placeholder has."""
    names = {*names_given(holder.labels), holder.labels.get(config.LABEL_LEASE)}
    return [gpu.key for gpu in gpus if names.intersection((gpu.key, gpu.index))]
