"""Finding the jobs that a person means, and bringing them up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tao_sdk.cli import exit_codes
from tao_sdk.cli.humanise import seconds_between
from tao_sdk.cli.session import Place, Session
from tao_sdk.errors import JobNotFoundError, TaoError
from tao_sdk.job_store import Row, decode
from tao_sdk.job_store.paths import state_files_at, state_paths
from tao_sdk.models import TERMINAL_STATES, JobState, JobUri
from tao_sdk.platforms.observation import describe
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.platforms.submit import owner_is_gone
from tao_sdk.polling import PollSchedule

_ABANDONED = (
    "its client ended while submitting it; `tao-sdk wait` or `tao-sdk watch` finds out whether the "
    "platform has the job"
)


@dataclass(frozen=True)
class FoundJob:
    """A job's record and the store it is in."""

    place: Place
    row: Row

    @property
    def job_id(self) -> str:
        return str(self.row["job_id"])

    @property
    def platform(self) -> str:
        return str(self.row["backend_type"])

    @property
    def status(self) -> str:
        return str(self.row["status"])

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL_STATES

    @property
    def message(self) -> str:
        if self.row["phase"] == "submitting" and owner_is_gone(self.row):
            return _ABANDONED
        return describe(self.row).message

    @property
    def request(self) -> Mapping[str, Any]:
        """The request, maybe abridged; {} for a job that another program recorded."""
        return decode(self.row, "request")

    @property
    def whole_request(self) -> Mapping[str, Any]:
        """The request, with the whole command and every option."""
        row = self.place.store.get_job(self.job_id) if "abridged" in self.request else None
        return decode(row or self.row, "request")

    @property
    def failure(self) -> dict[str, Any] | None:
        return decode(self.row, "failure") or None

    @property
    def uri(self) -> str:
        return str(JobUri(self.platform, self.job_id, self.place.store.address))

    @property
    def seconds(self) -> float | None:
        """How long it ran, or runs."""
        now = datetime.now(timezone.utc)
        return seconds_between(self.row["started_at"], self.row["ended_at"], now)

    @property
    def exit_code(self) -> int:
        """The exit code that mirrors this job, which has ended."""
        if self.status == JobState.COMPLETE.value:
            return exit_codes.OK
        if self.status == JobState.CANCELED.value:
            return exit_codes.CANCELED
        code = self.row["exit_code"]
        return int(code) if code and 1 <= code <= 255 else exit_codes.JOB_FAILED

    @property
    def sdk(self) -> PlatformSDK:
        return self.place.sdk(self.platform)


def find_job(session: Session, reference: str) -> FoundJob:
    """The job that a reference means; see the help of the group for the forms."""
    if not reference.startswith("tao://"):
        place = session.place
        return FoundJob(place, place.store.find_job(reference))
    address = JobUri.parse(reference)
    searched = []
    for state_file in state_files_at(address.state):
        paths = state_paths(state_file)
        searched.append(paths.database)
        if not paths.exist:
            continue
        place = session.place_of(None if state_file is None else Path(state_file))
        row = place.store.get_job(address.job_id)
        if row is not None and row["backend_type"] == address.platform:
            return FoundJob(place, row)
    raise JobNotFoundError(
        f"no job {address.job_id} of {address.platform} in {' or '.join(searched)}"
    )


def find_jobs(session: Session, references: Sequence[str]) -> list[FoundJob]:
    """The jobs meant, each once, in the order given. All are found, or an error is raised."""
    found = [find_job(session, reference) for reference in references]
    return list({(id(job.place), job.job_id): job for job in found}.values())


def by_platform(jobs: Iterable[FoundJob]) -> list[list[FoundJob]]:
    """Groups that one round trip can ask about."""
    groups: dict[tuple[int, str], list[FoundJob]] = {}
    for job in jobs:
        groups.setdefault((id(job.place), job.platform), []).append(job)
    return list(groups.values())


def reread(jobs: Sequence[FoundJob]) -> list[FoundJob]:
    """The same jobs as the store knows them now, less those that are gone from it."""
    ids: dict[Place, list[str]] = {}
    for job in jobs:
        ids.setdefault(job.place, []).append(job.job_id)
    rows = {place: place.store.jobs_by_id(wanted) for place, wanted in ids.items()}
    return [
        replace(job, row=rows[job.place][job.job_id])
        for job in jobs
        if job.job_id in rows[job.place]
    ]


def with_whole_requests(jobs: Sequence[FoundJob]) -> list[FoundJob]:
    """The same jobs with whole rows, read at once for each store; a lone one reads its own."""
    ids: dict[Place, list[str]] = {}
    for job in jobs:
        if "abridged" in job.request:
            ids.setdefault(job.place, []).append(job.job_id)
    rows = {place: place.store.whole_jobs_by_id(wanted) for place, wanted in ids.items()}
    return [replace(job, row=rows.get(job.place, {}).get(job.job_id, job.row)) for job in jobs]


def look_at(jobs: Sequence[FoundJob]) -> str:
    """Look once at jobs of one platform, changing nothing there; what to complain about, or ""."""
    try:
        jobs[0].sdk.look([job.job_id for job in jobs])
    except TaoError as error:
        return last_known(jobs[0].platform, error)
    return ""


def last_known(platform: str, error: TaoError) -> str:
    """The complaint when a platform could not be asked about jobs."""
    return f"{error} (jobs of {platform} are shown as last known)"


def refresh(
    jobs: Sequence[FoundJob],
    complain: Callable[[str], None],
    look: Callable[[Sequence[FoundJob]], str] = look_at,
) -> list[FoundJob]:
    """Look once at the open jobs of every platform, changing nothing there.

    Jobs of a platform that is not usable here keep their last known state; a warning says so.
    """
    unsettled = [job for job in jobs if not job.terminal or _unexplained(job)]
    for group in by_platform(unsettled):
        if complaint := look(group):
            complain(complaint)
    return reread(jobs)


class PacedLook:
    """Looks at the jobs of one store again and again, at each platform's own pace."""

    def __init__(self) -> None:
        self._schedules: dict[str, PollSchedule] = {}
        self._complaints: dict[str, str] = {}

    def __call__(self, jobs: Sequence[FoundJob]) -> str:
        """Like `look_at`; between two looks, the complaint of the last one."""
        platform = jobs[0].platform
        if self._is_due(jobs):
            self._complaints[platform] = look_at(jobs)
        return self._complaints[platform]

    def _is_due(self, jobs: Sequence[FoundJob]) -> bool:
        platform = jobs[0].platform
        if platform not in self._schedules:
            try:
                self._schedules[platform] = PollSchedule(jobs[0].sdk.backend)
            except TaoError:
                return True  # the look fails for the same reason, and says so
        return self._schedules[platform].is_due([job.job_id for job in jobs])


def _unexplained(job: FoundJob) -> bool:
    return job.status == JobState.ERROR.value and job.failure is None
