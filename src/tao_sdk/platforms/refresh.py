"""One poll of a platform's jobs: observe, write down, explain; an attending process also acts.

Looking changes nothing on the platform, and in the store only observed states and explanations.
Acting means to submit ended jobs again (`retry`) and to call `advance` for what is due. One process
at a time acts, by a lease in the store; a process that finds the lease taken has only looked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, DamagedRowError
from tao_sdk.job_states import TERMINAL_STATES, JobState
from tao_sdk.job_store import Row, StatusUpdate, decode
from tao_sdk.platforms import retry
from tao_sdk.platforms.backend import MISSING, Backend, JobRef, Observation, RetryLimits
from tao_sdk.platforms.bucket_results import records_in_bucket
from tao_sdk.platforms.capabilities import Advances, ExplainsPending, Resubmits, Sweeps
from tao_sdk.platforms.isolation import ask_isolated, senseless
from tao_sdk.platforms.observation import (
    update_for_missing,
    update_for_unreachable,
    update_from_observation,
)
from tao_sdk.platforms.submit import job_ref
from tao_sdk.platforms.whereabouts import Whereabouts
from tao_sdk.result_record import ResultRecord, first_failure, read_records

if TYPE_CHECKING:
    from tao_sdk.failures import Evidence
    from tao_sdk.job_store import JobStore

Analysis = Mapping[str, Any]
# How often a process that wants to act checks whether another one has finished.
_BUSY_SECONDS = 0.05
# A process that acts for longer has lost the lease.
_LEASE_SECONDS = 120.0


class _Poll(NamedTuple):
    """What one look at the platform showed, by job id."""

    seen: dict[str, Observation]
    analyses: dict[str, Analysis]
    """Of ended jobs that may be submitted again: why they ended."""
    retries: dict[str, retry.Retry]
    """The jobs to be submitted again."""


class Refresher:
    """Brings the store's rows of one platform up to date."""

    def __init__(self, store: JobStore, backend: Backend) -> None:
        self._store = store
        self._backend = backend
        self._platform = backend.platform
        self.whereabouts = Whereabouts(backend)
        self._written: dict[str, tuple[Row, Observation]] = {}
        """Rows of running jobs, and what was written down there: it need not be compared again."""

    def refresh(self, rows: Mapping[str, Row], *, attend: bool) -> dict[str, Row]:
        """Ask the platform about the open jobs among `rows`; all rows afterwards."""
        rows = dict(rows)
        open_rows = [
            row
            for row in rows.values()
            if self._is_submitted(row) and row["status"] not in TERMINAL_STATES
        ]
        poll = self._look(open_rows) if open_rows else _Poll({}, {}, {})
        if not attend:
            return self._write_down(poll, rows)
        rows = self._attend(poll, rows)
        if isinstance(self._backend, Sweeps):
            self._sweep(self._backend)
        return rows

    def _sweep(self, backend: Sweeps) -> None:
        try:
            backend.sweep()
        except BackendUnreachableError:
            pass  # the next process tries again
        except Exception:  # noqa: BLE001 - the states of the jobs are reported all the same
            _log_exception("tidying up %s failed; repeated later", self._platform)

    def _attend(self, poll: _Poll, rows: dict[str, Row]) -> dict[str, Row]:
        """Write down what was seen, and act on it unless another process does."""
        if self._has_work(poll, rows):
            with self._store.lease(f"attend {self._platform}", _LEASE_SECONDS) as acting:
                if acting:
                    self._resubmit(poll, rows)
                    rows = self._write_down(poll, rows)
                    return rows | self._advance(poll, rows)
        return self._write_down(poll, rows)

    def clean_up(self, patience: float = 0.0) -> None:
        """Clean up after ended jobs that no process attended to when they ended.

        Waits up to `patience` seconds for another process that is acting.
        """
        if not isinstance(self._backend, Advances):
            return
        deadline = time.monotonic() + patience
        while left := self._store.jobs_to_clean(self._platform):
            with self._store.lease(f"attend {self._platform}", _LEASE_SECONDS) as acting:
                if acting:
                    nothing_seen = _Poll({}, {}, {})
                    rows = self._write_down(nothing_seen, {row["job_id"]: row for row in left})
                    self._advance(nothing_seen, rows)
                    return
            if time.monotonic() >= deadline:
                return
            time.sleep(_BUSY_SECONDS)

    def why_stuck(self, row: Row) -> dict[str, Any] | None:
        """Why a pending job will never start; None while it may, or if that cannot be asked."""
        if not isinstance(self._backend, ExplainsPending):
            return None
        from tao_sdk.failures import explain
        from tao_sdk.platforms.evidence import RawEvidence, redacted

        try:
            evidence = self._backend.stuck(job_ref(row))
        except BackendUnreachableError:
            return None  # the job's state says so
        if evidence is None:
            return None
        return explain(redacted(RawEvidence(evidence), settings.known_secrets()))

    # ---------------------------------------------------------------- looking

    def _look(self, rows: Sequence[Row]) -> _Poll:
        jobs, damaged = _references(rows)
        try:
            seen = self._observe(list(jobs.values())) if jobs else {}
        except BackendUnreachableError as error:
            away = Observation(None, unreachable=str(error))
            return _Poll({**damaged, **dict.fromkeys(jobs, away)}, {}, {})
        by_id = {row["job_id"]: row for row in rows}
        for job_id, job in jobs.items():
            if seen[job_id].unreachable and self._has_ended_by_records(by_id[job_id], job):
                seen[job_id] = MISSING
        seen |= damaged
        if not isinstance(self._backend, Resubmits):
            return _Poll(seen, {}, {})
        return self._judge_ends(jobs, seen, self._backend.retry_limits)

    def _observe(self, jobs: Sequence[JobRef]) -> dict[str, Observation]:
        """The observations of these jobs. One that cannot be made is unreachable, alone."""
        seen = ask_isolated(
            lambda some: dict(self._backend.observe(some)),
            jobs,
            lambda job, error: {job.job_id: Observation(None, unreachable=senseless(error))},
        )
        return self.whereabouts.check(jobs, seen)

    def _has_ended_by_records(self, row: Row, job: JobRef) -> bool:
        """Whether records show the end of a job that the platform cannot be asked about."""
        if row["local_results_dir"] and not self.whereabouts.at_last_poll(job.job_id):
            return False  # the platform is of this machine, too, and will know more
        try:
            records = _reachable_records(row, job)
            return len(records) >= _nodes(row) or first_failure(records) is not None
        except Exception:  # noqa: BLE001 - it must not stop the other jobs
            return False

    def _judge_ends(
        self, jobs: Mapping[str, JobRef], seen: dict[str, Observation], limits: RetryLimits
    ) -> _Poll:
        """Tell ends that are final from those that another attempt follows; changes `seen`."""
        ended = {
            job_id: job
            for job_id, job in jobs.items()
            if retry.may_retry(seen[job_id]) and not job.cancel_requested
        }
        doubtful = [
            (job, _known_evidence(seen[job_id].exit_code, seen[job_id].message))
            for job_id, job in ended.items()
            if retry.needs_explanation(seen[job_id])
        ]
        analyses = self._explanations(doubtful)
        for job, _ in doubtful:
            if job.job_id not in analyses:
                # The end must not become final before it is known whether it is one.
                why = "the job has ended, but its log, which tells why, cannot be read"
                seen[job.job_id] = Observation(None, unreachable=why)
        retries = {}
        for job_id in ended:
            decision = retry.decide(seen[job_id], analyses.get(job_id), limits)
            if isinstance(decision, retry.Retry):
                retries[job_id] = decision
            elif decision is not None:
                message = f"{seen[job_id].message}; {decision.message}"
                seen[job_id] = seen[job_id]._replace(message=message)
        final = [job for job, _ in doubtful if job.job_id in analyses.keys() - retries.keys()]
        for job_id, why in self._submitted_meanwhile(final, seen).items():
            # The evidence may be that of the newer attempt. The next poll looks at that one.
            seen[job_id] = Observation(None, unreachable=why)
            del analyses[job_id]
        return _Poll(seen, analyses, retries)

    def _submitted_meanwhile(
        self, jobs: Sequence[JobRef], seen: Mapping[str, Observation]
    ) -> dict[str, str]:
        """Which of these are no longer at the attempt that `seen` shows, or may be; and why."""
        if not jobs:
            return {}
        try:
            now = self._observe(jobs)
        except BackendUnreachableError as error:
            return dict.fromkeys((job.job_id for job in jobs), str(error))
        return {
            job.job_id: now[job.job_id].unreachable or "another process submitted the job again"
            for job in jobs
            if now[job.job_id].attempts != seen[job.job_id].attempts
        }

    def _explanations(self, jobs: Sequence[tuple[JobRef, Evidence]]) -> dict[str, Analysis]:
        """Why these jobs ended; those that cannot be asked about are left out.

        The evidence given with a job counts where the platform has none.
        """
        if not jobs:
            return {}
        from tao_sdk.failures import Evidence, explain
        from tao_sdk.platforms.evidence import redacted

        secrets = settings.known_secrets()
        known = {job.job_id: evidence for job, evidence in jobs}

        def explained(some: Sequence[JobRef]) -> dict[str, Analysis]:
            analyses: dict[str, Analysis] = {}
            for job_id, raw in self._backend.evidence(some).items():
                evidence = redacted(raw, secrets)
                analyses[job_id] = explain(known[job_id] if evidence == Evidence() else evidence)
            return analyses

        try:
            # A job whose evidence makes no sense is explained by what is known without it.
            return ask_isolated(
                explained,
                [job for job, _ in jobs],
                lambda job, _: {job.job_id: explain(known[job.job_id])},
            )
        except BackendUnreachableError:
            return {}

    # ---------------------------------------------------------------- writing down

    def _write_down(self, poll: _Poll, rows: dict[str, Row]) -> dict[str, Row]:
        updates = []
        for job_id, seen in poll.seen.items():
            if job_id in poll.retries:
                seen = _awaiting_retry(seen, poll.retries[job_id])
            elif self._written.pop(job_id, None) == (rows[job_id], seen):
                self._written[job_id] = (rows[job_id], seen)
                continue
            updates.append(self._update(rows[job_id], seen))
        if updates:
            rows = rows | self._store.rows_after(updates, rows)
        for update in updates:
            seen = poll.seen[update.job_id]
            if seen.state is JobState.RUNNING and update.job_id not in poll.retries:
                self._written[update.job_id] = (rows[update.job_id], seen)
        return rows | self._explain(rows, poll)

    def _update(self, row: Row, seen: Observation) -> StatusUpdate:
        if seen.unreachable:
            return update_for_unreachable(row, seen.unreachable)
        try:
            if seen.state is None:
                return self._missing(row, seen.message)
            return update_from_observation(row, seen)
        except Exception as error:  # noqa: BLE001 - it must not stop the other jobs
            return update_for_unreachable(row, senseless(error))

    def _missing(self, row: Row, reason: str) -> StatusUpdate:
        try:
            job, nodes = job_ref(row), _nodes(row)
            records = _reachable_records(row, job) or self._backend.result_records(job)
        except BackendUnreachableError as error:
            return update_for_unreachable(row, str(error))
        grace = timedelta(seconds=settings.get_seconds("TAO_SDK_VANISH_GRACE_SECONDS"))
        now = datetime.now(timezone.utc)
        update = update_for_missing(row, records, nodes, now, grace, reason)
        # The platform forgot the job, but may still keep something of it: its credentials, say.
        if isinstance(self._backend, Advances) and update.status in TERMINAL_STATES:
            update = update._replace(cleanup_due=True)
        return update

    def _explain(self, rows: Mapping[str, Row], poll: _Poll) -> dict[str, Row]:
        """Store why jobs failed, while their evidence is still there; the rows concerned."""
        failed = [row for row in rows.values() if self._needs_explanation(row)]
        if not failed:
            return {}
        jobs, _ = _references([row for row in failed if row["job_id"] not in poll.analyses])
        elsewhere = self._elsewhere(list(jobs.values()), poll)
        unknown = [
            (jobs[row["job_id"]], _known_evidence(row["exit_code"], row["message"]))
            for row in failed
            if row["job_id"] in jobs.keys() - elsewhere
        ]
        analyses = {**poll.analyses, **self._explanations(unknown)}
        ids = [row["job_id"] for row in failed]
        # The others are asked about again with the next poll.
        return self._store.record_failures(
            {name: analyses[name] for name in ids if name in analyses}
        )

    def _elsewhere(self, jobs: Sequence[JobRef], poll: _Poll) -> set[str]:
        """Which of these are not the platform's; it is asked about those that were not polled."""
        away = {job.job_id for job in jobs if self.whereabouts.at_last_poll(job.job_id)}
        unpolled = [job for job in jobs if job.job_id not in poll.seen]
        try:
            return away | self.whereabouts.elsewhere(unpolled).keys()
        except BackendUnreachableError:
            return away | {job.job_id for job in unpolled}

    # ---------------------------------------------------------------- acting

    def _has_work(self, poll: _Poll, rows: Mapping[str, Row]) -> bool:
        return bool(poll.retries) or (
            isinstance(self._backend, Advances)
            and (
                any(seen.due for seen in poll.seen.values())
                or any(map(self._to_clean, rows.values()))
            )
        )

    def _resubmit(self, poll: _Poll, rows: Mapping[str, Row]) -> None:
        """Submit again what ended through no fault of its own; `poll` shows it afterwards."""
        if not isinstance(self._backend, Resubmits):
            return
        # Read again: a request to cancel may have come while the platform was asked.
        rows = {**rows, **self._store.jobs_by_id(list(poll.retries))}
        for job_id, one in dict(poll.retries).items():
            why = _why(poll.seen[job_id], one)
            if rows[job_id]["cancel_requested_at"]:
                # The next poll judges the end as that of a cancelled job.
                del poll.retries[job_id], poll.seen[job_id]
                continue
            try:
                again = self._backend.resubmit(
                    job_ref(rows[job_id]), one.attempt, one.pause_seconds, why
                )
            except BackendUnreachableError:
                continue  # tried again with the next poll
            except Exception:  # noqa: BLE001 - it must not stop the other jobs
                _log_exception("submitting %s again failed; repeated later", job_id)
                continue
            del poll.retries[job_id]
            poll.seen[job_id] = again

    def _advance(self, poll: _Poll, rows: Mapping[str, Row]) -> dict[str, Row]:
        # A job that waits for its retry or its explanation needs what would be cleaned up.
        due = [
            row
            for job_id, row in rows.items()
            if (self._to_clean(row) or (job_id in poll.seen and poll.seen[job_id].due))
            and not (job_id in poll.retries or self._needs_explanation(row))
        ]
        if not due or not isinstance(self._backend, Advances):
            return {}
        jobs = list(_references(due)[0].values())
        elsewhere = self._elsewhere(jobs, poll)
        here = [job for job in jobs if job.job_id not in elsewhere]
        try:
            done = self._backend.advance(here) if here else ()
        except BackendUnreachableError:
            return {}  # repeated with the next poll
        except Exception:  # noqa: BLE001 - the states of the jobs are reported all the same
            _log_exception("acting on jobs of %s failed; repeated later", self._platform)
            return {}
        cleaned = [
            StatusUpdate(row["job_id"], cleanup_due=False)
            for row in due
            if self._to_clean(row) and row["job_id"] in done
        ]
        return self._store.rows_after(cleaned, rows) if cleaned else {}

    # ---------------------------------------------------------------- which rows

    def _to_clean(self, row: Row) -> bool:
        return bool(row["cleanup_due"]) and self._is_submitted(row)

    def _is_submitted(self, row: Row) -> bool:
        return bool(row["backend_type"] == self._platform and row["phase"] == "submitted")

    def _needs_explanation(self, row: Row) -> bool:
        """Whether it failed, or was cancelled without our request (preempted, say)."""
        unasked = row["status"] == JobState.CANCELED.value and not row["cancel_requested_at"]
        return (
            (row["status"] == JobState.ERROR.value or unasked)
            and row["failure"] is None
            and self._is_submitted(row)
        )


def _references(rows: Sequence[Row]) -> tuple[dict[str, JobRef], dict[str, Observation]]:
    """The jobs as the backend needs them; and those whose rows are damaged, as unreachable."""
    jobs: dict[str, JobRef] = {}
    damaged: dict[str, Observation] = {}
    for row in rows:
        try:
            jobs[row["job_id"]] = job_ref(row)
        except DamagedRowError as error:
            damaged[row["job_id"]] = Observation(None, unreachable=str(error))
    return jobs, damaged


def _log_exception(message: str, *about: str) -> None:
    import logging  # most processes log nothing

    logging.getLogger(__name__).warning(message, *about, exc_info=True)


def _nodes(row: Row) -> int:
    return int(decode(row, "request").get("num_nodes", 1))


def _reachable_records(row: Row, job: JobRef) -> list[ResultRecord]:
    """The records that need no platform: in a folder of this machine, or in a bucket."""
    if folder := row["local_results_dir"]:
        with suppress(OSError):
            return read_records(Path(folder), job.job_id, _nodes(row))
        return []
    return records_in_bucket(job, _nodes(row))


def _known_evidence(exit_code: int | None, message: str) -> Evidence:
    from tao_sdk.failures import Evidence  # only failures need it

    return Evidence(exit_code=exit_code, reason=message)


def _why(seen: Observation, one: retry.Retry) -> str:
    return f"{seen.message} ({one.label})"


def _awaiting_retry(seen: Observation, one: retry.Retry) -> Observation:
    return Observation(
        JobState.PENDING,
        f"to be submitted again after {_why(seen, one)}; `tao-sdk watch` or `tao-sdk wait` does it",
    )
