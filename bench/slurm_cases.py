"""Jobs of the SLURM platform beside the reference's SlurmSDK, submitit and ssh used bare.

On a cluster of the test lab that nobody else uses. Its jobs wait in a partition that never starts
one, so that no job's own work is in a figure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.driver import Driver
from bench.harness import Case, Contender, Sample
from bench.peers import OURS, Environment
from bench.place import QUICK, Place
from bench.slurm_bed import BareSsh, Bed, Client, slurm_bed

MANY, QUICK_MANY = 1000, 200
FEW, QUICK_FEW = 10, 2
"""So many are asked about one by one where all of them would take minutes."""
JOBS, CANCELED = "jobs", "known as Canceled"
# The reference gives up after 30 s.
PATIENCE_SECONDS, QUICK_PATIENCE_SECONDS = 60.0, 5.0


class _Sdk:
    """SlurmSDK in a process of its own, ours or the reference's."""

    def __init__(self, place: Place, bed: Bed, environment: Environment, ending: ExitStack) -> None:
        name = environment.peer or "ours"
        self.peer = environment.peer
        self.absent = bed.absent or environment.absent
        self.client: Client = bed.client(name)
        self._environment = environment
        self._folders = (place.folder / f"{name}-{number}" for number in itertools.count())
        self.driver = ending.enter_context(self._new_driver())

    def _new_driver(self) -> Driver:
        variables = self.client.variables
        return Driver(self._environment, "with_slurm_sdk", next(self._folders), **variables)

    def submit(self) -> Sample:
        return self.client.counted(lambda: self.driver.ask("submit"))

    def submit_first(self) -> Sample:
        """The first job of a process that knows nothing yet; the connection is open."""
        with self._new_driver() as driver:
            driver.start()
            return self.client.counted(lambda: driver.ask("submit"))

    def ask_each(self) -> Sample:
        return self.client.counted(lambda: self.driver.ask("ask_each"))

    def ask_together(self) -> Sample:
        return self.client.counted(lambda: self.driver.ask("ask_together"))

    def cancel(self, limit: float) -> Sample:
        job = self.driver.ask("queue")
        taken = self.client.counted(lambda: self.driver.ask("cancel", job_id=job, limit=limit))
        canceled = self.driver.ask("is_canceled", job_id=job)
        return Sample(taken.seconds, {**taken.facts, CANCELED: float(canceled)})


@contextmanager
def slurm_submit(place: Place) -> Iterator[Case]:
    """Until the call that submits one job returns."""
    submitit = place.peers["submitit"]
    with slurm_bed(place.folder) as bed, ExitStack() as ending:
        ours = _Sdk(place, bed, OURS, ending)
        reference = _Sdk(place, bed, place.peers["reference"], ending)
        folder = bed.users_folder("submitit") / "driver" if bed.lab else place.folder
        local = ending.enter_context(
            Driver(submitit, "with_submitit_slurm", folder, **bed.beside_sbatch())
        )
        yield Case(
            "SLURM: submit",
            "Until the call that submits one job returns. The image was converted and the "
            "connection opened by a job before.",
            [
                Contender("SlurmSDK.create_job", ours.submit, absent=ours.absent),
                Contender(
                    "SlurmSDK.create_job, the first of a process",
                    ours.submit_first,
                    includes="what the cluster has and whether the image is there is asked first",
                    absent=ours.absent,
                ),
                Contender(
                    "SlurmSDK.create_job (the reference)",
                    reference.submit,
                    peer=reference.peer,
                    absent=reference.absent,
                ),
                Contender(
                    "submitit SlurmExecutor.submit",
                    lambda: Sample(local.ask("submit")),
                    includes="a pickle and `sbatch` on a host that has it; nothing goes over ssh",
                    peer=submitit.peer,
                    absent=bed.absent or submitit.absent,
                ),
            ],
            floor=Contender("ssh sbatch", BareSsh(bed).timed_submit) if bed.lab else None,
            rounds=2 if _is_quick(place) else 6,
        )


@contextmanager
def slurm_refresh(place: Place) -> Iterator[Case]:
    """The states of many jobs, at once and one by one."""
    many, few = (QUICK_MANY, QUICK_FEW) if _is_quick(place) else (MANY, FEW)
    with slurm_bed(place.folder) as bed, ExitStack() as ending:
        ours = _Sdk(place, bed, OURS, ending)
        reference = _Sdk(place, bed, place.peers["reference"], ending)
        if not ours.absent:
            ours.driver.ask("make_together", count=many)
        if not reference.absent:
            reference.driver.ask("make_each", count=few)
        bare = BareSsh(bed) if bed.lab else None
        numbers = [bare.submit() for _ in range(few)] if bare else []

        def one_by_one(*, connects: bool) -> Sample:
            assert bare is not None
            seconds = bare.timed_state_of_each(numbers, connects=connects)
            return Sample(seconds, {JOBS: few})

        yield Case(
            f"SLURM: status of {many:,} jobs",
            f"Of {many:,} jobs that wait in the queue. Those who ask about one at a time do it for "
            f"{few}; the target compares the times for one.",
            [
                Contender(
                    f"get_statuses of {many:,}",
                    lambda: _with_jobs(ours.ask_together(), many),
                    absent=ours.absent,
                ),
                Contender(
                    f"{few} x get_job_status (the reference)",
                    lambda: _with_jobs(reference.ask_each(), few),
                    peer=reference.peer,
                    absent=reference.absent,
                ),
                Contender(
                    f"{few} x ssh squeue -j, each with a connection",
                    lambda: one_by_one(connects=True),
                    peer="ssh",
                    absent=bed.absent,
                ),
                Contender(
                    f"{few} x ssh squeue -j, over one open connection",
                    lambda: one_by_one(connects=False),
                    peer="ssh",
                    absent=bed.absent,
                ),
            ],
            floor=Contender("ssh squeue of all", bare.timed_states) if bare else None,
            rounds=2 if _is_quick(place) else 5,
        )


@contextmanager
def slurm_cancel(place: Place) -> Iterator[Case]:
    """Until the call that cancels a job of the queue returns."""
    quick = _is_quick(place)
    limit = QUICK_PATIENCE_SECONDS if quick else PATIENCE_SECONDS
    with slurm_bed(place.folder) as bed, ExitStack() as ending:
        ours = _Sdk(place, bed, OURS, ending)
        reference = _Sdk(place, bed, place.peers["reference"], ending)
        yield Case(
            "SLURM: cancel a job that waits",
            f"Until the call returns, but no longer than {limit:.0f} s; then the job's state is "
            "asked for.",
            [
                Contender(
                    "SlurmSDK.cancel_job",
                    lambda: ours.cancel(limit),
                    includes="the job was seen to have ended",
                    absent=ours.absent,
                ),
                Contender(
                    "SlurmSDK.cancel_job (the reference)",
                    lambda: reference.cancel(limit),
                    peer=reference.peer,
                    absent=reference.absent,
                ),
            ],
            floor=Contender("ssh scancel", BareSsh(bed).timed_cancel) if bed.lab else None,
            # Few: the reference's call takes half a minute. A job is submitted before each, so
            # that the connection is open.
            rounds=1 if quick else 2,
            warm_ups=0,
        )


def _with_jobs(taken: Sample, count: int) -> Sample:
    return Sample(taken.seconds, {**taken.facts, JOBS: count})


def _is_quick(place: Place) -> bool:
    return place.sizes == QUICK
