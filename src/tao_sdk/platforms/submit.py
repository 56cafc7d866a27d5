"""Write-ahead, idempotent submission.

The order of events is the whole point::

    1  the row is written: phase "submitting", our process as its owner, a token, and where the
       platform will keep the job
    2  backend.submit(plan)
    3  the row is confirmed with the platform's own name for the job (the disk is not waited for:
       what a power cut undoes here is found out again, as below)

A process may be killed between any two of them. The next process that opens the store finds rows
whose owner is gone, takes them over (exactly one process succeeds), and asks the backend to
`settle` them: adopted if the platform has the job, marked as never submitted if it has not. A job
is never started twice, and none is left running that the store does not know.

A process that lives on after Ctrl-C would own its unfinished rows for as long as it lives. So they
are settled before the interrupt goes on to the caller, and what cannot be settled in time is
released: its owner is cleared.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from tao_sdk import settings
from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    DamagedRowError,
    JobExistsError,
    SubmissionRejectedError,
    SubmissionUncertainError,
    TaoError,
)
from tao_sdk.job_store import NewJob, Row, decode_strictly
from tao_sdk.platforms.backend import Backend, JobIdentity, JobRef, Plan, Submission
from tao_sdk.platforms.isolation import ask_isolated
from tao_sdk.platforms.whereabouts import Whereabouts
from tao_sdk.process_identity import ProcessIdentity, is_abandoned

if TYPE_CHECKING:
    from tao_sdk.job_store import JobStore

# What an interrupted caller waits for, at most, while its submissions are settled.
SETTLE_SECONDS = 10.0
INTERRUPTED = "not submitted: interrupted"
NEVER_SUBMITTED = "never submitted: its client was gone before the platform accepted it"


def job_ref(row: Mapping[str, Any]) -> JobRef:
    """A stored row as a backend needs it."""
    return JobRef(
        identity=JobIdentity(row["job_id"], row["token"]),
        native=decode_strictly(row, "native"),
        results_dir=row["results_dir"],
        cancel_requested_at=row["cancel_requested_at"],
    )


class _Batch:
    """The plans of one call. All changes are single operations that no signal can cut in half."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.job_ids = [plan.job_id for plan in plans]
        self.waiting = deque(plans)
        """Not handed to the platform."""
        self.cut_short: Sequence[Plan] = ()
        """Handed to the platform by the caller's thread, which an interrupt takes out of it."""
        self.threads: list[threading.Thread] = []
        """They take plans from `waiting` and finish what they took, whatever the caller does."""
        self.ended: SimpleQueue[None] = SimpleQueue()
        """One entry for each thread that has ended."""


class Submitter:
    """Carries plans from the store to the platform and back."""

    def __init__(self, store: JobStore, backend: Backend) -> None:
        self._store = store
        self._backend = backend
        self._whereabouts = Whereabouts(backend)
        self._unreleased: set[str] = set()
        """Jobs whose rows could not be released (a full disk): tried again before settling."""

    def submit(self, plan: Plan) -> Row | None:
        """Submit one plan. Its row; None if others have removed it meanwhile."""
        self._backend.provide([plan])
        batch = _Batch([plan])
        with self._settled_if_interrupted(batch):
            self._store.begin_submissions([self._new_job(plan)])
            batch.cut_short = [batch.waiting.popleft()]
            return self._start(plan)

    def submit_many(self, plans: Sequence[Plan]) -> None:
        """Submit many plans. What goes wrong with one job is in its row, and stops no other."""
        self._backend.provide(plans)
        batch = _Batch(plans)
        with self._settled_if_interrupted(batch):
            self._store.begin_submissions([self._new_job(plan) for plan in plans])
            self._start_together(batch, plans)
            self._start_singly(batch)
            # Rows that could not be written (a full disk): others settle them.
            with contextlib.suppress(TaoError):  # tried again before settling
                self._release(batch.job_ids)

    def _start_together(self, batch: _Batch, plans: Sequence[Plan]) -> None:
        """Start what the platform can start at once, and leave the others waiting."""
        batch.cut_short = plans
        batch.waiting.clear()
        try:
            started = self._backend.submit_together(plans)
        except Exception as error:  # noqa: BLE001 - settled for each job
            for plan in plans:
                with contextlib.suppress(Exception):  # its row has the reason
                    self._settle_doubt(plan, error)
            return
        for job_id, submission in started.items():
            self._record(job_id, submission)
        batch.waiting.extend(plan for plan in plans if plan.job_id not in started)
        batch.cut_short = ()

    def _start_singly(self, batch: _Batch) -> None:
        for number in range(min(self._backend.submit_parallelism, len(batch.waiting))):
            # Daemons: a platform that does not answer must not keep the process from exiting.
            name = f"tao-submit-{number}"
            thread = threading.Thread(target=self._work, args=(batch,), name=name, daemon=True)
            batch.threads.append(thread)
            try:
                thread.start()
            except RuntimeError:  # a limit of threads or processes: go on with those there are
                batch.threads.pop()
                break
        # Not joined: Python 3.11 takes a thread for dead when a signal interrupts its `join`.
        for _ in batch.threads:
            batch.ended.get()
        while batch.waiting:  # there is no thread
            batch.cut_short = [batch.waiting.popleft()]
            with contextlib.suppress(Exception):  # its row has the reason
                self._start(batch.cut_short[0])

    def _work(self, batch: _Batch) -> None:
        try:
            while True:
                plan = batch.waiting.popleft()
                with contextlib.suppress(Exception):  # its row has the reason
                    self._start(plan)
        except IndexError:  # nothing is waiting any more
            return
        finally:
            batch.ended.put(None)

    @contextlib.contextmanager
    def _settled_if_interrupted(self, batch: _Batch) -> Iterator[None]:
        """No row of the batch stays under our name when the body ends early."""
        try:
            yield
        except JobExistsError:
            self._backend.withdraw(tuple(batch.waiting))
            raise  # the rows are another submission's
        except Exception:
            _despite_interrupts(lambda: self._release(batch.job_ids))
            self._backend.withdraw(tuple(batch.waiting))
            raise
        except BaseException as interrupt:
            uncertain = self._settle_interrupted(batch)
            # Tell the caller which job it was about; of several, the first stands for all. The
            # attributes are the contract's; no exception type declares them.
            interrupt.tao_job_id = batch.job_ids[0]  # type: ignore[attr-defined]  # a note on it
            interrupt.tao_launch_uncertain = uncertain  # type: ignore[attr-defined]  # a note on it
            raise

    def _settle_interrupted(self, batch: _Batch) -> bool:
        """Settle the batch in bounded time; a second interrupt ends the wait at once.

        True when it is uncertain what became of some job, whose row is then released.
        """
        over: SimpleQueue[None] = SimpleQueue()

        def settle() -> None:
            with contextlib.suppress(Exception):  # released below; the interrupt says more
                self._settle_batch(batch)
            over.put(None)

        with contextlib.suppress(BaseException):  # of several interrupts the first is raised
            # In a thread: signals, and what their handlers raise, go to the caller's.
            threading.Thread(target=settle, name="tao-settle", daemon=True).start()
            with contextlib.suppress(Empty):
                over.get(timeout=SETTLE_SECONDS)
        batch.waiting.clear()
        released: list[list[str]] = []
        _despite_interrupts(lambda: released.append(self._release(batch.job_ids)))
        return released != [[]]

    def _settle_batch(self, batch: _Batch) -> None:
        never_begun = []
        while batch.waiting:
            with contextlib.suppress(IndexError):  # a thread was faster
                never_begun.append(batch.waiting.popleft())
        self._reject_interrupted([plan.job_id for plan in never_begun])
        self._backend.withdraw(never_begun)
        rows = self._store.jobs_by_id([plan.job_id for plan in batch.cut_short])
        unsettled = [row for row in rows.values() if row["phase"] == "submitting"]
        if unsettled:
            settled = self._settle([job_ref(row) for row in unsettled])
            self._reject_interrupted([name for name in settled if settled[name] is None])
            for job_id, submission in settled.items():
                if submission is not None:
                    self._record(job_id, submission)
        for thread in batch.threads:
            thread.join()

    def _release(self, job_ids: Sequence[str]) -> list[str]:
        """Let others settle what we did not; the jobs concerned."""
        self._unreleased.update(job_ids)
        due = list(self._unreleased)
        released = self._store.release_submissions(due, str(ProcessIdentity.current()))
        self._unreleased.difference_update(due)
        return [job_id for job_id in released if job_id in job_ids]

    def reconcile(self) -> list[str]:
        """Settle what killed processes left half submitted. Returns the ids settled."""
        me = str(ProcessIdentity.current())
        mine: list[JobRef] = []
        settled: Mapping[str, Submission | None] = {}
        try:
            if self._unreleased:
                self._release(())
            for row in self._store.unsettled_submissions(self._backend.platform):
                try:
                    job = job_ref(row)
                except DamagedRowError:
                    continue  # polls say what is wrong with it
                if owner_is_gone(row):
                    mine.append(job)  # first: an interrupt must not lose one that was taken over
                    if not self._store.claim_submission(row["job_id"], row["owner"], me):
                        mine.pop()
            if mine:
                settled = self._settle(mine)
            for job_id, submission in settled.items():
                if submission is None:
                    failure = _explain_no_start(NEVER_SUBMITTED)
                    self._store.reject_submission(job_id, message=NEVER_SUBMITTED, failure=failure)
                else:
                    self._record(job_id, submission)
        finally:
            if mine:
                _despite_interrupts(lambda: self._release([job.job_id for job in mine]))
        return list(settled)

    def _settle(self, jobs: Sequence[JobRef]) -> dict[str, Submission | None]:
        """What became of these submissions. Jobs that cannot be settled now are left out: the next
        process tries again, or one that reaches the platform that would have them.
        """
        elsewhere = self._whereabouts.elsewhere(jobs)
        here = [job for job in jobs if job.job_id not in elsewhere]
        if not here:
            return {}
        return ask_isolated(lambda some: dict(self._backend.settle(some)), here, lambda *_: {})

    def _start(self, plan: Plan) -> Row | None:
        try:
            submission = self._backend.submit(plan)
        except (SubmissionRejectedError, CapacityError) as error:
            self._reject(plan.job_id, error)
            raise
        except Exception as error:  # noqa: BLE001 - raised again unless the job was accepted
            return self._settle_doubt(plan, error)
        return self._record(plan.job_id, submission)

    def _settle_doubt(self, plan: Plan, error: Exception) -> Row | None:
        """After an error of unknown meaning: the row, if the job was accepted all the same."""
        reference = JobRef(plan.identity, plan.intent, plan.results_dir)
        try:
            submission = self._settle([reference])[plan.job_id]
        except Exception:  # noqa: BLE001 - not settled, whatever it is: not in the answer, say
            self._store.release_submission(plan.job_id)
            raise SubmissionUncertainError(
                f"{plan.identity.name} may or may not have been accepted: {error}. It is settled "
                f"on the next contact with {plan.platform}; do not submit it again. "
                f"Ask with: tao-sdk status {plan.job_id}",
                plan.job_id,
            ) from error
        if submission is None:
            self._reject(plan.job_id, error)
            raise error
        return self._record(plan.job_id, submission)

    def _record(self, job_id: str, submission: Submission) -> Row | None:
        """Write down that the platform has the job; its row afterwards."""
        confirmed = self._store.confirm_submission(
            job_id,
            backend_job_id=submission.backend_job_id,
            native=submission.native,
            message=submission.message,
        )
        row = confirmed or self._store.get_job(job_id)
        # A cancel was requested before the job had a name on the platform; or another
        # machine waited out our lease and declared the job never submitted.
        unwanted = row is not None and (
            row["cancel_requested_at"] if confirmed else row["phase"] == "rejected"
        )
        if row is not None and unwanted:
            native = json.dumps(dict(submission.native))
            # `cancel` says so when it is asked again.
            with contextlib.suppress(BackendUnreachableError):
                self._backend.cancel(job_ref({**row, "native": native}))
        return row

    def _reject(self, job_id: str, error: Exception) -> None:
        reason = f"not submitted: {str(error) or type(error).__name__}"
        failure = _explain_no_start(reason)
        if isinstance(error, CapacityError):
            from tao_sdk.failures import ErrClass

            # Whatever words the platform has for it.
            failure["err_class"] = ErrClass.CAPACITY.value
            failure["suggestion"] = "wait for GPUs (when_busy='wait'), or ask for fewer"
        self._store.reject_submission(job_id, message=reason, failure=failure)

    def _reject_interrupted(self, job_ids: Sequence[str]) -> None:
        if job_ids:
            failure = _explain_no_start(INTERRUPTED)
            self._store.reject_submissions(
                job_ids, message=INTERRUPTED, failure=failure, status="Canceled"
            )

    def _new_job(self, plan: Plan) -> NewJob:
        request = plan.request
        return NewJob(
            job_id=plan.job_id,
            network_arch=request.network_arch,
            action=request.action,
            workspace_id=request.workspace_id,
            backend_type=plan.platform,
            token=plan.identity.token,
            owner=str(ProcessIdentity.current()),
            image=request.image,
            specs=request.specs,
            request=request.to_dict(),
            native=plan.intent,
            results_dir=plan.results_dir,
            local_results_dir=plan.local_results_dir,
            backend_job_id=plan.identity.name,
            parent_job_id=request.parent_job_id,
            plan_id=request.plan_id,
            step_id=request.step_id,
            base_checkpoint=request.base_checkpoint,
            message="being submitted",
        )


def _explain_no_start(reason: str) -> dict[str, Any]:
    from tao_sdk.failures import Evidence, explain  # most submissions need no explanation

    return explain(Evidence(never_started=True, reason=reason))


def _despite_interrupts(work: Callable[[], object]) -> None:
    """Do a little work to its end. What goes wrong there hides no error of the caller."""
    is_over = False
    over: SimpleQueue[None] = SimpleQueue()

    def quietly() -> None:
        nonlocal is_over
        try:
            with contextlib.suppress(TaoError):
                work()
        finally:
            is_over = True
            over.put(None)

    thread = threading.Thread(target=quietly, name="tao-release")
    while not is_over:
        try:
            if thread.ident is None:
                thread.start()
            over.get()  # not `join`: see `_start_singly`
        except RuntimeError:  # no thread can be started (a limit of processes): here, then
            quietly()
        except BaseException:  # noqa: BLE001, S112 - another Ctrl-C: the caller raises the first one
            continue


def owner_is_gone(row: Mapping[str, Any]) -> bool:
    """Whether the process that was submitting this job has ended, as far as can be seen."""
    lease = settings.get_seconds("TAO_SDK_SUBMIT_LEASE_SECONDS")
    try:
        silence = datetime.now(timezone.utc) - datetime.fromisoformat(row["updated_at"])
    except (ValueError, TypeError):  # a damaged row
        silence = timedelta.max
    return is_abandoned(row["owner"], silence.total_seconds(), lease)
