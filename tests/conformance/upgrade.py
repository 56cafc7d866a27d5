"""A store of the version before is upgraded, and its jobs go on."""

from __future__ import annotations

from pathlib import Path

from lab.old_store import make_old
from tao_sdk.platforms.conformance import Lab, eventually

__all__ = ["TestUpgrade"]

WAIT = 'until [ -e "$TAO_RESULTS_ROOT/$TAO_JOB_ID/go" ]; do sleep 0.1; done; '


class TestUpgrade:
    """Part of the conformance suite of every platform that had jobs before."""

    def test_running_jobs_of_the_version_before_go_on(self, lab: Lab) -> None:
        with lab.sdk() as sdk:
            path = Path(sdk.store.path)
            failing = sdk.create_job(**lab.job(f"echo begun; {WAIT}exit 3"))
            endless = sdk.create_job(**lab.job(WAIT))
            ids = [failing.id, endless.id]
            eventually(lambda: {s.status for s in sdk.get_statuses(ids).values()} == {"Running"})
        make_old(path)
        with lab.sdk() as sdk:
            assert {s.status for s in sdk.get_statuses(ids).values()} == {"Running"}
            assert endless.id in {job.id for job in sdk.list_jobs(status="Running")}
            assert sdk.cancel_job(endless.id)
            lab.touch_result(failing, "go")
            status = sdk.wait(failing.id, timeout=120)
            assert status.status == "Error"
            assert "begun" in sdk.get_job_logs(failing.id)
            why = sdk.get_failure_analysis(failing.id)
            assert why is not None
            assert why["exit_code"] == 3
            assert sdk.get_job_status(endless.id).status == "Canceled"

    def test_a_waiting_job_of_the_version_before_goes_on(self, lab: Lab) -> None:
        with lab.sdk() as sdk:
            path = Path(sdk.store.path)
            job = lab.pending_job(sdk)
            if job is None:
                return
        make_old(path)
        with lab.sdk() as sdk:
            assert sdk.get_job_status(job.id).status == "Pending"
            assert sdk.cancel_job(job.id)
            assert sdk.get_job_status(job.id).status == "Canceled"
        assert lab.starts_of(job.id) == 0

    def test_a_half_submitted_job_of_the_version_before_is_settled(self, lab: Lab) -> None:
        with lab.sdk() as sdk:
            path = Path(sdk.store.path)
            sdk.wait(sdk.create_job(**lab.job("true")).id)  # its folders are there afterwards
            plan = sdk.plan(**lab.counted_job("true"))
            sdk.store.begin_submissions([sdk._submitter._new_job(plan)])
            sdk.store.release_submission(plan.job_id)
        make_old(path)
        with lab.sdk() as sdk:
            assert sdk.reconcile() == [plan.job_id]
            assert sdk.get_job_status(plan.job_id).status == "Error"
        assert lab.starts_of(plan.job_id) == 0
