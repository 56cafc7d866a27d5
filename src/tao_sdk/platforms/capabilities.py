"""Optional abilities of platforms: small protocols beside the seam.

A backend has an ability if it has its methods. The code above the seam checks with `isinstance`,
and does without abilities that a platform lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from tao_sdk.platforms.backend import Attempt, JobRef, Observation, RetryLimits

# `BacksOff` is one of the protocols; it stands where the monitor, a layer below, finds it, too.
from tao_sdk.polling import BacksOff as BacksOff
from tao_sdk.polling import PollBackoff as PollBackoff
from tao_sdk.polling import backoff_of as backoff_of

if TYPE_CHECKING:
    from tao_sdk.failures import Evidence
    from tao_sdk.results import ResultSource


@runtime_checkable
class Advances(Protocol):
    """A process must act for jobs to go on, or to be cleaned up."""

    def advance(self, jobs: Sequence[JobRef]) -> Collection[str]:
        """Start waiting jobs, save logs and outcomes before the platform forgets, clean up.

        An attending process calls it with the jobs whose last observation was `due`, ended ones
        included. A lease admits one process at a time, but a slow process may outlive its lease, so
        repeating must be harmless. Trouble with one job stops no other. `observe` shows the result.

        Returns the ids of the jobs that need nothing more. It is called again with the others,
        ended ones included (their log could not be saved, say).
        """


@runtime_checkable
class Locates(Protocol):
    """Other daemons, clusters, workspaces or machines have jobs of the same store."""

    def elsewhere(self, jobs: Sequence[JobRef]) -> Mapping[str, str]:
        """Why some of these jobs, which this platform does not know, are not its own to judge.

        Only these are in the answer. See `Whereabouts`, which asks.
        """


@runtime_checkable
class Sweeps(Protocol):
    """Killed processes may leave something on the platform that no row of the store leads to."""

    def sweep(self) -> None:
        """Remove it, if no process has looked for it lately. Every attending process calls this."""


class Leftovers(NamedTuple):
    """What past jobs left on a platform, one sentence each."""

    due: Sequence[str] = ()
    """To be removed by `reconcile`, again and again until it is gone."""
    kept: Sequence[str] = ()
    """Stays, although no job needs it."""


@runtime_checkable
class HasLeftovers(Protocol):
    """An SDK that records what its jobs leave on the platform, such as rented instances."""

    def leftovers(self) -> Leftovers:
        """What the records of this store say. Opens no connection."""


@runtime_checkable
class Resubmits(Protocol):
    """A job can run again under the same id."""

    @property
    def retry_limits(self) -> RetryLimits: ...

    def resubmit(self, job: JobRef, attempt: Attempt, pause_seconds: int, why: str) -> Observation:
        """Submit the job again as `attempt`; return its state afterwards.

        `why` completes "submitted again as … after". If an attempt of that number exists already,
        or the platform refuses, the observation says so.
        """


@runtime_checkable
class ExplainsPending(Protocol):
    """The platform can tell that a pending job will never start."""

    def stuck(self, job: JobRef) -> Evidence | None:
        """Why the job will never start; None while it may."""


@runtime_checkable
class ListsResults(Protocol):
    """Only the platform can list the results of its jobs."""

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        """Relative paths and sizes of a job's results."""


@runtime_checkable
class ServesResults(Protocol):
    """Only the platform can fetch the results of its jobs."""

    def result_source(self, job: JobRef) -> ResultSource | None:
        """A source to fetch a job's results from; None if this job has none that can be reached."""


@runtime_checkable
class ListsReplicas(Protocol):
    """A job has processes, pods or containers that can be listed."""

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        """One entry for each of them."""


@runtime_checkable
class Deletes(Protocol):
    """What an ended job left behind can be removed."""

    def delete_artifacts(self, job: JobRef) -> bool:
        """Remove its results and everything the platform keeps of it; False if it could not.

        Repeating it is harmless. Results in a bucket are removed above, afterwards.
        """


@runtime_checkable
class Browses(Protocol):
    """Paths can be looked at as jobs see them."""

    def check_path(self, path: str) -> bool:
        """Whether there is such a path."""

    def list_path(self, path: str) -> list[str]:
        """Names in a folder."""


@runtime_checkable
class Closes(Protocol):
    """Connections or processes are kept open."""

    def close(self) -> None:
        """Release them. Jobs go on, and the next call opens what it needs."""
