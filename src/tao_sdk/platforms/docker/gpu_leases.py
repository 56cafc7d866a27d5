"""GPU leases that live on the daemon, so that jobs of any process and any store share its GPUs.

A lease is a placeholder container `tao-gpu-<GPU>`: its name can be taken once, its labels say for
which job. It is worth as much as that job: once the job's container has ended or is gone, any
process may remove the placeholder. A lease whose job does not exist yet is of a process that
is about to create it, or that died trying; it counts for a minute.

`docker container prune` removes placeholders. So the job's container says as well which GPUs it
has, and has them while it lives, placeholder or not; and it is started only if the placeholders
were still there when it had been made. A missing placeholder is made again by
attending processes.

When the daemon is on this machine, the local platform's leases are taken as well, and kept by a
small process for as long as the container lives (lease_holder.py): local jobs, those of earlier
versions included, know leases by file locks alone, and a lock needs a process. If that process is
killed, an attending process takes the locks again.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.docker import config, lease_holder
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.gpus import keys_given, names_given
from tao_sdk.platforms.docker.placeholders import remove, take_name, withdraw
from tao_sdk.platforms.docker.status import LIVE_STATES, Census, Container
from tao_sdk.platforms.gpus.discovery import Gpu
from tao_sdk.platforms.gpus.leases import GpuLeases, look_for_free, release

_log = logging.getLogger("tao_sdk.docker")
# How long a lease may be without a container: creating and starting one takes about a second.
TENTATIVE_SECONDS = 60
_PATIENCE_SECONDS = 10


@dataclass
class Lease:
    """GPUs that are ours until `close`, or until the job ends."""

    job_id: str
    gpus: list[Gpu] = field(default_factory=list)
    placeholders: list[str] = field(default_factory=list)
    descriptors: dict[str, int] = field(default_factory=dict)

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
        transport: DockerClient,
        census: Callable[[str], Census],
        local_folder: str | None,
    ) -> None:
        """`census` lists the containers of one job, or all of ours for ""."""
        self._transport = transport
        self._census = census
        self._local_folder = local_folder
        self._lock_refused: set[str] = set()

    def take(
        self, job_id: str, gpus: Sequence[Gpu], count: int, census: Census | None = None
    ) -> Lease | Busy:
        """Lease `count` of these GPUs, all or none. `census` is fresh, if it is given."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            census = census or self._census("")
            in_the_way = self._holders(census, gpus)
            lease = self._take_free(job_id, gpus, count, set(in_the_way))
            if len(lease.gpus) == count:
                return lease
            self.release(lease)
            tentative = [held for held in in_the_way.values() if held.job_id not in census.jobs]
            # Another process may be about to give up, exactly as we just did: look again.
            contested = len(gpus) - len(in_the_way) >= count or tentative
            if not contested or time.monotonic() > deadline:
                names = sorted({f"tao-job-{held.job_id}" for held in in_the_way.values()})
                return Busy(len(lease.gpus), tuple(names))
            time.sleep(random.uniform(0.02, 0.2))  # noqa: S311 - to fall out of step
            census = None

    def release(self, lease: Lease) -> None:
        """Give a lease back that no container uses."""
        for placeholder in lease.placeholders:
            remove(self._transport, placeholder)
        lease.close_descriptors()

    def still_held(self, lease: Lease) -> bool:
        """Whether nothing of it was pruned, or taken for abandoned because we were asleep.

        Asked when the container is made: from then on its GPUs are not taken for free. A process
        that did so before has removed a placeholder of ours, or found it removed.
        """
        present = {held.id for held in self._census(lease.job_id).leases}
        return present.issuperset(lease.placeholders)

    def look(self, census: Census, gpus: Sequence[Gpu]) -> dict[str, str]:
        """Which of these GPUs is held, by their keys: for which job, or "" for a local one.

        Looks only: what it sees may change before a lease is taken.
        """
        wanted = [gpu.key for gpu in gpus]
        held = dict.fromkeys(set(wanted).difference(self._unlocked(wanted)), "")
        for lease in census.leases:
            if self._is_valid(lease, census):
                held.update(dict.fromkeys(_held_by(lease, gpus), lease.job_id))
        for job in census.jobs.values():
            young = job.state == "created" and self.age(job) < TENTATIVE_SECONDS
            if job.state in LIVE_STATES or young:
                held.update(dict.fromkeys(_held_by(job, gpus), job.job_id))
        return held

    def lacks_something(self, job: Container, leases: Sequence[Container]) -> bool:
        """Whether `restore` has something to do for a job."""
        keys = keys_given(job.labels)
        if not keys or job.state not in LIVE_STATES:
            return False
        if not {lease.labels[config.LABEL_LEASE] for lease in leases}.issuperset(keys):
            return True
        lockable = self._local_folder is not None and job.id not in self._lock_refused
        return lockable and bool(self._unlocked(keys))

    def release_all(self, job_id: str, census: Census) -> None:
        """Give back the GPUs of a job that does not run."""
        for lease in census.leases_of(job_id):
            remove(self._transport, lease.id)

    def restore(self, job: Container, leases: Sequence[Container]) -> None:
        """Make up for what was taken from a running job: placeholders, and locks."""
        keys = keys_given(job.labels)
        if not keys or job.state not in LIVE_STATES:
            return
        present = {lease.labels[config.LABEL_LEASE] for lease in leases}
        for key in keys:
            if key not in present:
                take_name(self._transport, _name(key), _labels(key, job.job_id))
        if self._local_folder is not None and job.id not in self._lock_refused:
            self._lock_again(self._local_folder, job, keys)

    @contextlib.contextmanager
    def kept_for(self, container: str, locks: Mapping[str, int]) -> Iterator[None]:
        """Have these locks held until the container ends; begun before it is started."""
        if not locks:
            yield
            return
        path = self._transport.endpoint.url.removeprefix("unix://")
        holder = lease_holder.Holder(path, container, locks.values())
        try:
            yield
        except DaemonError:  # the start was refused, for certain
            holder.dismiss()
            raise
        finally:
            if code := holder.leave():
                _log.warning(
                    "the GPUs of container %s are not locked for local jobs: the process that "
                    "should hold them ended with %s",
                    container,
                    code,
                )

    def _lock_again(self, folder: str, job: Container, keys: Sequence[str]) -> None:
        """Take the machine's locks whose holder was killed, unless a local job has them now."""
        try:
            locks = GpuLeases(folder).retake(keys)
        except OSError as error:
            # Who only watches a job is told its state all the same; once is enough.
            self._lock_refused.add(job.id)
            _log.warning("the GPUs of %s cannot be locked for local jobs: %s", job.name, error)
            return
        try:
            with self.kept_for(job.id, locks):
                pass
        finally:
            release(locks)

    def _unlocked(self, keys: Sequence[str]) -> list[str]:
        """Which of these GPUs no local job has, as far as this process may see."""
        if self._local_folder is None:
            return list(keys)
        try:
            return look_for_free(Path(self._local_folder), keys)
        except OSError:
            return list(keys)

    def _take_free(self, job_id: str, gpus: Sequence[Gpu], count: int, taken: set[str]) -> Lease:
        lease = Lease(job_id)
        for gpu in gpus:
            if len(lease.gpus) == count:
                break
            if gpu.key in taken:
                continue
            descriptors = self._local(gpu)
            if descriptors is None:
                continue
            try:
                labels = {**_labels(gpu.key, job_id), config.LABEL_GPUS: gpu.index}
                placeholder = take_name(self._transport, _name(gpu.key), labels)
            except BaseException:
                release(descriptors)
                lease.close_descriptors()
                raise
            if placeholder is None:
                release(descriptors)
                continue
            lease.gpus.append(gpu)
            lease.placeholders.append(placeholder)
            lease.descriptors.update(descriptors)
        return lease

    def _local(self, gpu: Gpu) -> dict[str, int] | None:
        """The local platform's lock of that GPU; None when a local job has it or waits for it."""
        if self._local_folder is None:
            return {}
        try:
            return GpuLeases(self._local_folder).try_take([gpu.key], 1, None) or None
        except OSError as error:
            raise SubmissionRejectedError(
                f"GPUs cannot be leased in {self._local_folder} (TAO_GPU_LEASE_DIR): {error}"
            ) from error

    def _holders(self, census: Census, gpus: Sequence[Gpu]) -> dict[str, Container]:
        """Who has which of these GPUs: a lease that counts, or the job's container itself.

        Leases that are worth nothing any more are removed, those that a job lacks made again.
        """
        holders: dict[str, Container] = {}
        for lease in census.leases:
            if self._is_valid(lease, census):
                holders.update(dict.fromkeys(_held_by(lease, gpus), lease))
            else:
                remove(self._transport, lease.id)
        for job in census.jobs.values():
            held = _held_by(job, gpus)
            if held and self._occupies(job):
                holders.update(dict.fromkeys(held, job))
                self.restore(job, census.leases_of(job.job_id))
        return holders

    def _occupies(self, job: Container) -> bool:
        if job.state == "created":  # about to be started, or its maker has died
            # An old one may still be started, by a slow daemon or a client that slept: not after
            # it was taken back.
            return self.age(job) < TENTATIVE_SECONDS or not withdraw(self._transport, job.id)
        return job.state in LIVE_STATES

    def _is_valid(self, lease: Container, census: Census) -> bool:
        job = census.jobs.get(lease.job_id)
        if job is not None and job.started:
            return not job.ended
        return self.age(lease) < TENTATIVE_SECONDS

    def age(self, lease: Container) -> float:
        """How old a container is, by the clock of its daemon."""
        age = time.time() - lease.created
        if 0 <= age < TENTATIVE_SECONDS / 2:
            return age
        # Old, or our clocks differ: only the daemon's own counts.
        return self._transport.time().timestamp() - lease.created


def _held_by(holder: Container, gpus: Sequence[Gpu]) -> list[str]:
    """The keys of those of these GPUs that a job's container or a lease has."""
    names = {*names_given(holder.labels), holder.labels.get(config.LABEL_LEASE)}
    return [gpu.key for gpu in gpus if names.intersection((gpu.key, gpu.index))]


def _name(key: str) -> str:
    return "tao-gpu-" + re.sub(r"[^A-Za-z0-9_.-]", "-", key)


def _labels(key: str, job_id: str) -> dict[str, str]:
    return {config.LABEL: "true", config.LABEL_JOB: job_id, config.LABEL_LEASE: key}
