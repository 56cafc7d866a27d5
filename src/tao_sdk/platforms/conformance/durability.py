"""Every process reports the same true state of a job, at any time and after any fault."""

from __future__ import annotations

import json
import threading

import pytest

import tao_sdk
from tao_sdk.platforms.capabilities import Browses
from tao_sdk.platforms.conformance.lab import Lab, eventually, reference
from tao_sdk.watcher import Watcher

LONG = 90
MANY = 200


class TestDurability:
    # seed 000.2, seed 000.20
    def test_reattach_from_another_process(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo hello; exit 6"))
        found = lab.run_python_json(
            "import json, sys\n"
            "job = sdk.get_job(sys.argv[1])\n"
            "status = job.wait(timeout=60)\n"
            "print(json.dumps([status.status, list(job.logs()), job.explain()['exit_code']]))",
            job.id,
        )
        assert found == ["Error", ["hello"], 6]

    def test_reattach_by_address(self, lab: Lab) -> None:
        job = lab.sdk().create_job(**lab.job("true"))
        assert job.uri.startswith(f"tao://{job.backend_type}/{job.id}?state=")
        again = tao_sdk.attach(job.uri)
        assert again.wait(timeout=LONG).status == "Complete"

    def test_submitted_by_a_process_that_is_gone(self, lab: Lab) -> None:
        job_id = lab.run_python(
            "import json, sys\nprint(sdk.create_job(**json.loads(sys.argv[1])).id)",
            json.dumps(lab.job("sleep 0.3; echo done")),
        ).strip()
        sdk = lab.sdk()
        assert sdk.wait(job_id, timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job_id) == "done\n"

    @pytest.mark.timeout(400)
    def test_many_jobs_are_refreshed_in_one_round_trip(self, lab: Lab) -> None:
        sdk = lab.sdk()
        jobs = sdk.create_jobs([lab.job("true")] * MANY)
        ids = [job.id for job in jobs]
        assert len(set(ids)) == MANY
        assert not any(job.terminal for job in jobs), "the platform was not asked yet"
        calls = len(sdk.backend.transport.calls)
        sdk.get_statuses(ids)
        assert 1 <= len(sdk.backend.transport.calls) - calls <= lab.round_trips
        statuses = sdk.wait_all(ids, timeout=300)  # a small cluster takes some time for so many
        assert {status.status for status in statuses.values()} == {"Complete"}

    def test_eight_processes_at_once(self, lab: Lab) -> None:
        source = (
            "import json, sys\n"
            "jobs = [sdk.create_job(**json.loads(sys.argv[1])) for _ in range(4)]\n"
            "sdk.wait_all([job.id for job in jobs], timeout=80)\n"
            "print(json.dumps([job.id for job in jobs]))"
        )
        text = json.dumps(lab.counted_job("true"))
        processes = [lab.start_python(source, text) for _ in range(8)]
        ids: list[str] = []
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            ids += json.loads(out)
        rows = lab.sdk().store.jobs_by_id(ids)
        assert len(rows) == 32
        assert {row["status"] for row in rows.values()} == {"Complete"}
        assert {lab.starts_of(job_id) for job_id in ids} == {1}

    def test_jobs_of_another_platform_are_left_alone(self, lab: Lab) -> None:
        sdk = lab.sdk()
        sdk.store.create_job("other-1", "", "", "", backend_type="elsewhere", status="Running")
        status = sdk.get_job_status("other-1")
        assert status.status == "Unknown"
        assert "elsewhere" in status.message
        assert sdk.cancel_job("other-1") is False
        assert sdk.list_jobs() == []


class TestTruth:
    def test_unreachable_platform_changes_nothing(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 600"))
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
        with lab.unreachable():
            status = sdk.get_job_status(job.id)
            assert status.status == "Running"
            assert "cannot reach" in status.message
            first = status.message
            again = lab.sdk().get_job_status(job.id)
            assert again.message == first, "since when it is unreachable must not move"
        status = sdk.get_job_status(job.id)
        assert (status.status, "cannot reach" in status.message) == ("Running", False)
        assert job.cancel()

    def test_a_cancellation_that_was_not_heard_is_taken_back(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job(
                'echo up; d="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; '
                'while [ ! -e "$d/seen" ]; do sleep 0.05; done'
            )
        )
        eventually(lambda: "up" in sdk.get_job_logs(job.id))  # its results folder is there
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
        with lab.unreachable():
            assert sdk.cancel_job(job.id) is False
        lab.touch_result(job, "seen")
        assert lab.sdk().wait(job.id, timeout=LONG).status == "Complete"

    def test_following_a_log_survives_an_outage(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job(
                'echo first; d="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; '
                'while [ ! -e "$d/seen" ]; do sleep 0.05; done; echo last'
            )
        )
        lines = job.logs(follow=True)
        assert next(lines) == "first"
        rest: list[str] = []
        follower = threading.Thread(target=lambda: rest.extend(lines))
        with lab.unreachable():
            follower.start()
            eventually(lambda: "cannot reach" in sdk.get_job_status(job.id).message)
        lab.touch_result(job, "seen")
        follower.join(LONG)
        assert rest == ["last"]

    def test_forgotten_job_is_settled_by_its_record(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.counted_job("exit 3"))
        # Ended in reality, but not observed yet: only the record can tell afterwards.
        eventually(lambda: sdk.backend.result_records(reference(sdk, job.id)))
        lab.forget(job, with_results=False)
        status = lab.sdk().get_job_status(job.id)
        assert status.status == "Error"
        assert "record" in status.message
        analysis = sdk.get_failure_analysis(job.id)
        assert analysis is not None
        assert analysis["exit_code"] == 3

    def test_vanished_job_ends_after_a_grace_period(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"))
        eventually(lambda: sdk.backend.result_records(reference(sdk, job.id)))
        lab.forget(job, with_results=True)
        status = sdk.get_job_status(job.id)
        assert not status.terminal
        assert "does not know" in status.message
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        status = sdk.wait(job.id, timeout=LONG)
        assert status.status == "Error"
        analysis = sdk.get_failure_analysis(job.id)
        assert analysis is not None
        assert analysis["err_class"] == "ERR_UNKNOWN"
        assert "vanished" in analysis["cause"]

    def test_without_a_watcher_the_truth_waits(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.counted_job("exit 2"))
        eventually(lambda: sdk.backend.result_records(reference(sdk, job.id)))
        row = sdk.store.get_job(job.id)
        assert row is not None
        assert row["status"] == "Pending", "the platform was not asked yet"
        assert lab.sdk().wait(job.id, timeout=LONG).status == "Error"

    def test_a_watcher_keeps_the_store_true(self, lab: Lab) -> None:
        sdk = lab.sdk()
        jobs = sdk.create_jobs([lab.job("true"), lab.job("exit 2")])
        changes: list[str] = []
        watcher = Watcher(
            lab.state_file,
            report=lambda change: changes.append(change.status.status),
            complain=changes.append,
            poll_seconds=0.05,
        )
        thread = threading.Thread(target=watcher.run)
        thread.start()
        thread.join(LONG)
        assert not thread.is_alive()
        rows = sdk.store.jobs_by_id([job.id for job in jobs])
        assert [rows[job.id]["status"] for job in jobs] == ["Complete", "Error"]
        assert rows[jobs[1].id]["failure"] is not None
        assert {"Complete", "Error"} <= set(changes)

    def test_every_transition_is_in_the_event_log(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"))
        job.wait(timeout=LONG)
        kinds = [event["kind"] for event in sdk.store.events(job.id)]
        assert kinds[:2] == ["submitting", "submitted"]
        last = sdk.store.events(job.id)[-1]
        assert (last["kind"], last["to_status"]) == ("status", "Complete")

    def test_artefacts_can_be_deleted_once_ended(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 600"))
        assert sdk.delete_job_artifacts(job.id) is False
        assert job.cancel()
        lab.wait_until_finished(job)
        assert sdk.delete_job_artifacts(job.id) is True
        if isinstance(sdk.backend, Browses):
            assert not sdk.check_path(job.results_dir)
        assert sdk.get_job_status(job.id).status == "Canceled"
