"""Write-ahead, idempotent submission.

The order of events is the whole point::

    1  the row is written: phase "submitting", our process as its owner, a token, and where the
       platform will keep the job
    2  backend.submit(plan)
    3  the row is confirmed with the platform's own name for the job (the disk is not waited for:
       what a power cut undoes here is found out again, as below)

A process may be killed between any two of them. Whoever opens the store next finds rows whose
owner is gone, takes them over (exactly one process succeeds), and asks the backend to `settle`
them: adopted if the platform has the job, marked as never submitted if it has not. A job is
never started twice, and none is left running that the store does not know.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from tao_sdk import settings
from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    SubmissionRejectedError,
    SubmissionUncertainError,
)
from tao_sdk.job_store import NewJob, Row
from tao_sdk.platforms.backend import Backend, JobIdentity, JobRef, Plan, Submission
from tao_sdk.process_identity import Fate, ProcessIdentity

if TYPE_CHECKING:
    from tao_sdk.job_store import JobStore

NEVER_SUBMITTED = "never submitted: its client was gone before the platform accepted it"


def job_ref(row: Mapping[str, Any]) -> JobRef:
    """A stored row as a backend needs it."""
    return JobRef(
        identity=JobIdentity(row["job_id"], row["token"]),
        native=json.loads(row["native"]),
        results_dir=row["results_dir"],
        cancel_requested=bool(row["cancel_requested_at"]),
    )


class Submitter:
    """Carries plans from the store to the platform and back."""

    def __init__(self, store: JobStore, backend: Backend) -> None:
        self._store = store
        self._backend = backend

    def submit(self, plan: Plan) -> Row | None:
        """Submit one plan. Its row; None if others have removed it meanwhile."""
        self._backend.provide([plan])
        self._store.begin_submissions([self._new_job(plan)])
        return self._start(plan)

    def submit_many(self, plans: Sequence[Plan]) -> dict[str, Exception]:
        """Submit many plans; returns what went wrong, by job id. One bad job stops no other."""
        if not plans:
            return {}
        from concurrent.futures import ThreadPoolExecutor

        self._backend.provide(plans)
        self._store.begin_submissions([self._new_job(plan) for plan in plans])
        wrong, single = self._start_together(plans)
        workers = max(1, min(self._backend.submit_parallelism, len(single)))
        with ThreadPoolExecutor(workers, thread_name_prefix="tao-submit") as pool:
            outcomes = list(pool.map(self._start_catching, single))
        for plan, error in zip(single, outcomes, strict=True):
            if error is not None:
                wrong[plan.job_id] = error
        return wrong

    def _start_together(self, plans: Sequence[Plan]) -> tuple[dict[str, Exception], list[Plan]]:
        """Start what the platform can start at once; what went wrong, and who is left."""
        try:
            started = self._backend.submit_together(plans)
        except Exception as error:  # noqa: BLE001 - settled for each job, and reported
            return self._settle_each(plans, error), []
        except BaseException as interrupt:
            # As in `_start`; several jobs, so the first one stands for all.
            interrupt.tao_job_id = plans[0].job_id  # type: ignore[attr-defined]  # a note on it
            settled = [self._settled_after(interrupt, plan) for plan in plans]
            interrupt.tao_launch_uncertain = not all(settled)  # type: ignore[attr-defined]  # put there by a submission
            raise
        for job_id, submission in started.items():
            self._record(job_id, submission)
        return {}, [plan for plan in plans if plan.job_id not in started]

    def _settle_each(self, plans: Sequence[Plan], error: Exception) -> dict[str, Exception]:
        wrong: dict[str, Exception] = {}
        for plan in plans:
            try:
                if not self._settle_doubt(plan, error):
                    wrong[plan.job_id] = error
            except SubmissionUncertainError as doubt:
                wrong[plan.job_id] = doubt
        return wrong

    def reconcile(self) -> list[str]:
        """Settle what killed processes left half submitted. Returns the ids settled."""
        mine = [
            row
            for row in self._store.unsettled_submissions(self._backend.platform)
            if owner_is_gone(row) and self._take_over(row)
        ]
        if not mine:
            return []
        try:
            settled = self._backend.settle([job_ref(row) for row in mine])
        except BaseException:
            for row in mine:
                self._store.release_submission(row["job_id"])
            raise
        for row in mine:
            if row["job_id"] in settled:
                self._record(row["job_id"], settled[row["job_id"]])
            else:
                self._store.release_submission(row["job_id"])
        return list(settled)

    def _start(self, plan: Plan) -> Row | None:
        try:
            submission = self._backend.submit(plan)
        except (SubmissionRejectedError, CapacityError) as error:
            self._reject(plan.job_id, error)
            raise
        except Exception as error:
            if not self._settle_doubt(plan, error):
                raise
            return self._store.get_job(plan.job_id)
        except BaseException as interrupt:
            # Ctrl-C between here and the platform: tell the caller which job it was about. The
            # attributes are the contract's; no exception type declares them.
            interrupt.tao_job_id = plan.job_id  # type: ignore[attr-defined]  # a note on it
            interrupt.tao_launch_uncertain = not self._settled_after(interrupt, plan)  # type: ignore[attr-defined]  # a note on it
            raise
        return self._record(plan.job_id, submission)

    def _start_catching(self, plan: Plan) -> Exception | None:
        try:
            self._start(plan)
        except Exception as error:  # noqa: BLE001 - reported per job by submit_many
            return error
        return None

    def _settle_doubt(self, plan: Plan, error: Exception) -> bool:
        """After an error of unknown meaning: True when the job turned out to be accepted."""
        try:
            submission = self._ask(plan)
        except Exception:  # noqa: BLE001 - whatever it is: not settled, and somebody else may try
            self._store.release_submission(plan.job_id)
            raise SubmissionUncertainError(
                f"{plan.identity.name} may or may not have been accepted: {error}. It is settled "
                f"on the next contact with {plan.platform}; do not submit it again. "
                f"Ask with: tao-sdk status {plan.job_id}",
                plan.job_id,
            ) from error
        if submission is None:
            self._reject(plan.job_id, error)
            return False
        self._record(plan.job_id, submission)
        return True

    def _settled_after(self, interrupt: BaseException, plan: Plan) -> bool:
        try:
            submission = self._ask(plan)
        except BackendUnreachableError:
            self._store.release_submission(plan.job_id)
            return False
        if submission is None:
            self._reject(plan.job_id, interrupt, status="Canceled")
        else:
            self._record(plan.job_id, submission)
        return True

    def _ask(self, plan: Plan) -> Submission | None:
        reference = JobRef(plan.identity, plan.intent, plan.results_dir)
        settled = self._backend.settle([reference])
        if plan.job_id not in settled:
            raise BackendUnreachableError(f"{plan.platform} cannot say what became of the job")
        return settled[plan.job_id]

    def _record(self, job_id: str, submission: Submission | None) -> Row | None:
        """Write down what became of a submission; the job's row afterwards."""
        if submission is None:
            failure = _explain_no_start(NEVER_SUBMITTED)
            self._store.reject_submission(job_id, message=NEVER_SUBMITTED, failure=failure)
            return self._store.get_job(job_id)
        confirmed = self._store.confirm_submission(
            job_id,
            backend_job_id=submission.backend_job_id,
            native=submission.native,
            message=submission.message,
        )
        row = confirmed or self._store.get_job(job_id)
        # Somebody asked to cancel the job before it had a name on the platform; or another
        # machine waited out our lease and declared the job never submitted.
        unwanted = row is not None and (
            row["cancel_requested_at"] if confirmed else row["phase"] == "rejected"
        )
        if row is not None and unwanted:
            native = json.dumps(dict(submission.native))
            with contextlib.suppress(BackendUnreachableError):  # as lost as the wish itself
                self._backend.cancel(job_ref({**row, "native": native}))
        return row

    def _reject(self, job_id: str, error: BaseException, status: str = "Error") -> None:
        reason = f"not submitted: {str(error) or type(error).__name__}"
        failure = _explain_no_start(reason)
        if isinstance(error, CapacityError):
            from tao_sdk.failures import ErrClass

            # Whatever words the platform has for it.
            failure["err_class"] = ErrClass.CAPACITY.value
            failure["suggestion"] = "wait for GPUs (when_busy='wait'), or ask for fewer"
        self._store.reject_submission(job_id, message=reason, failure=failure, status=status)

    def _take_over(self, row: Mapping[str, Any]) -> bool:
        me = str(ProcessIdentity.current())
        return self._store.claim_submission(row["job_id"], row["owner"], me)

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


def owner_is_gone(row: Mapping[str, Any]) -> bool:
    """Whether the process that was submitting this job has ended, as far as can be told."""
    owner = ProcessIdentity.parse(row["owner"])
    if owner is None:  # released by an owner who could not tell
        return True
    fate = owner.fate
    if fate is Fate.UNKNOWN:
        lease = timedelta(seconds=settings.get_seconds("TAO_SDK_SUBMIT_LEASE_SECONDS"))
        begun = datetime.fromisoformat(row["updated_at"])
        return datetime.now(timezone.utc) - begun > lease
    return fate is Fate.GONE
