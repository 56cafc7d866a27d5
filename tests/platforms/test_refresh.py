"""A poll looks, and acts only where it attends; on a platform that a test dictates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.s3 import Bucket, fresh_bucket
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.failures import Evidence
from tao_sdk.job_store import JobStore, NewJob
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import (
    Attempt,
    Backend,
    CallLog,
    JobIdentity,
    JobRef,
    LogSource,
    Observation,
    Plan,
    RetryLimits,
    Submission,
)
from tao_sdk.platforms.bucket_results import remove_from_bucket
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.refresh import Refresher
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.submit import job_ref
from tao_sdk.result_record import ResultRecord, record_name

JOB = "11111111-1111-4111-8111-111111111111"
RECORD = (
    f'{{"version":1,"job_id":"{JOB}","rank":0,"attempt":1,"exit_code":0,"started_at":'
    '"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:05Z","host":"h"}'
)
NODE_FAILED = Observation(
    JobState.ERROR, "Node failed", fault="infra", node="n1", attempts=(Attempt(1),)
)
PROGRAM_FAILED = Observation(JobState.ERROR, "Failed", 1, attempts=(Attempt(1),))
RUNNING = Observation(JobState.RUNNING)


class Wire:
    def __init__(self) -> None:
        self.calls = CallLog()


class DictatedBackend(Backend):
    """Says what a test wants, and notes what it is told to do."""

    platform = "dictated"
    retry_limits = RetryLimits(2, 0.0)

    def __init__(self) -> None:
        self.transport = Wire()
        self.says = RUNNING
        self.after_resubmission = Observation(JobState.PENDING, "queued again")
        self.log: str | None = ""
        self.acted: list[tuple[str, str]] = []
        self.away = False
        self.refuses_retries = False
        self.leaves_it = False
        self.fails: Exception | None = None
        self.meanwhile: Observation | None = None
        """What it says once its evidence was read: another process has acted."""

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        return {job.job_id: self.says for job in jobs}

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        if self.away:
            raise BackendUnreachableError("the daemon does not answer")
        if self.fails is not None:
            raise self.fails
        self.acted += [("advance", job.job_id) for job in jobs]
        return [] if self.leaves_it else [job.job_id for job in jobs]

    def resubmit(self, job: JobRef, attempt: Attempt, pause_seconds: int, why: str) -> Observation:
        if self.refuses_retries:
            raise BackendUnreachableError("the login host does not answer")
        self.acted.append((f"attempt {attempt.number} without {attempt.excluded}", why))
        return self.after_resubmission

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        if self.meanwhile is not None:
            self.says = self.meanwhile
        if self.log is None:
            return {}
        return {job.job_id: RawEvidence(Evidence(exit_code=1, log_tail=self.log)) for job in jobs}

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        return []

    # -- not called here

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        raise NotImplementedError

    def submit(self, plan: Plan) -> Submission:
        raise NotImplementedError

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        raise NotImplementedError

    def cancel(self, job: JobRef) -> None:
        raise NotImplementedError

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        raise NotImplementedError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    with JobStore(tmp_path / "jobs.db") as opened:
        opened.begin_submissions([NewJob(JOB, "", "train", "w", "dictated", "token", "")])
        opened.confirm_submission(JOB, backend_job_id="77", native={})
        yield opened


@pytest.fixture
def backend() -> DictatedBackend:
    return DictatedBackend()


def poll(store: JobStore, backend: DictatedBackend, *, attend: bool) -> dict[str, Any]:
    refreshed = Refresher(store, backend).refresh(store.jobs_by_id([JOB]), attend=attend)
    assert refreshed == store.jobs_by_id([JOB]), "what is returned is what was written"
    return refreshed[JOB]


OTHERS = [f"22222222-2222-4222-8222-{number:012}" for number in range(7)]


class PoisonedBackend(DictatedBackend):
    """Cannot read what it is told about one of its jobs."""

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        if any(job.job_id == JOB for job in jobs):
            raise OverflowError("cannot convert float infinity to integer")
        return super().observe(jobs)


def test_an_unreadable_answer_about_a_job_touches_no_other(store: JobStore) -> None:
    for job_id in OTHERS:
        store.begin_submissions([NewJob(job_id, "", "train", "w", "dictated", "token", "")])
        store.confirm_submission(job_id, backend_job_id="1", native={})
    refreshed = Refresher(store, PoisonedBackend()).refresh(
        store.jobs_by_id([JOB, *OTHERS]), attend=False
    )
    assert {refreshed[job_id]["status"] for job_id in OTHERS} == {"Running"}
    assert refreshed[JOB]["status"] == "Pending"
    assert "makes no sense (OverflowError" in refreshed[JOB]["poll_error"]


def test_evidence_that_makes_no_sense_leaves_what_is_known(
    store: JobStore, backend: DictatedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.says = Observation(JobState.ERROR, "Failed", 137)

    def evidence(jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        raise KeyError("ended_at")

    monkeypatch.setattr(backend, "evidence", evidence)
    failure = json.loads(poll(store, backend, attend=False)["failure"])
    assert failure["exit_code"] == 137


@pytest.mark.parametrize("code", [10**30, -(10**30)])
def test_an_exit_code_that_cannot_be_stored_is_unknown(
    store: JobStore, backend: DictatedBackend, code: int
) -> None:
    backend.says = Observation(JobState.ERROR, "Failed", code)
    row = poll(store, backend, attend=False)
    assert (row["status"], row["exit_code"]) == ("Error", None)


def test_why_a_job_never_starts_shows_no_secret(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGC_KEY", "canary-of-a-registry")

    class Stuck(DictatedBackend):
        def stuck(self, job: JobRef) -> Evidence | None:
            del job
            reason = "ErrImagePull: login with canary-of-a-registry failed"
            return Evidence(reason=reason, never_started=True)

    analysis = Refresher(store, Stuck()).why_stuck(store.jobs_by_id([JOB])[JOB])
    assert analysis is not None
    assert "canary" not in json.dumps(analysis)


class TestLooking:
    @pytest.mark.parametrize(
        "says", [RUNNING._replace(due=True), NODE_FAILED, NODE_FAILED._replace(due=True)]
    )
    def test_it_acts_on_nothing(
        self, store: JobStore, backend: DictatedBackend, says: Observation
    ) -> None:
        backend.says = says
        poll(store, backend, attend=False)
        assert backend.acted == []

    def test_an_end_that_calls_for_a_retry_is_not_final(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says = NODE_FAILED
        row = poll(store, backend, attend=False)
        assert row["status"] == "Pending"
        assert "Node failed (infra; retry 1 of 2)" in row["message"]
        assert "tao-sdk watch" in row["message"]

    def test_what_a_looker_left_is_cleaned_up_later(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says = Observation(JobState.COMPLETE, due=True)
        row = poll(store, backend, attend=False)
        assert (row["status"], row["cleanup_due"]) == ("Complete", 1)
        Refresher(store, backend).clean_up()
        assert backend.acted == [("advance", JOB)]
        assert store.jobs_to_clean("dictated") == []


class TestBucket:
    """Results in a bucket need no platform to be read."""

    @pytest.fixture
    def results(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
        with fresh_bucket("moto") as bucket:
            for name, value in bucket.env.items():
                if name != "HOME":
                    monkeypatch.setenv(name, value)
            yield bucket

    @pytest.fixture
    def store(self, tmp_path: Path, results: Bucket) -> Iterator[JobStore]:
        job = NewJob(JOB, "", "train", "w", "dictated", "token", "")
        with JobStore(tmp_path / "jobs.db") as opened:
            opened.begin_submissions([job._replace(results_dir=f"{results.uri}/results/{JOB}")])
            opened.confirm_submission(JOB, backend_job_id="77", native={})
            yield opened

    @pytest.mark.parametrize(
        "says", [Observation(None), Observation(None, unreachable="it is on another host")]
    )
    def test_its_record_settles_what_the_platform_cannot_say(
        self, store: JobStore, backend: DictatedBackend, results: Bucket, says: Observation
    ) -> None:
        backend.says = says
        assert poll(store, backend, attend=False)["status"] == "Pending"
        results.put(f"results/{JOB}/{record_name(0)}", RECORD.encode())
        row = poll(store, backend, attend=False)
        assert (row["status"], row["exit_code"]) == ("Complete", 0)

    def test_a_bucket_that_is_away_changes_nothing(
        self,
        store: JobStore,
        backend: DictatedBackend,
        results: Bucket,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("SECRET_KEY", "")
        backend.says = Observation(None, unreachable="it is on another host")
        row = poll(store, backend, attend=False)
        assert (row["status"], row["poll_error"]) == ("Pending", "it is on another host")

    def test_its_folder_goes_after_what_the_platform_keeps(
        self, store: JobStore, backend: DictatedBackend, results: Bucket
    ) -> None:
        results.put(f"results/{JOB}/model.pth", b"model")
        results.put("results/another/model.pth", b"model")
        job = job_ref(store.jobs_by_id([JOB])[JOB])
        remove_from_bucket(job)
        remove_from_bucket(job)
        assert results.list_keys() == ["results/another/model.pth"]


class TestAttending:
    def test_what_is_due_is_advanced(self, store: JobStore, backend: DictatedBackend) -> None:
        backend.says = RUNNING._replace(due=True)
        poll(store, backend, attend=True)
        assert backend.acted == [("advance", JOB)]

    def test_an_end_is_cleaned_up_in_the_same_poll(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says = Observation(JobState.COMPLETE, due=True)
        row = poll(store, backend, attend=True)
        assert (row["status"], row["cleanup_due"]) == ("Complete", 0)
        assert backend.acted == [("advance", JOB)]

    def test_what_explains_a_failure_stays_until_it_was_read(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says, backend.log = PROGRAM_FAILED._replace(fault="program", due=True), None
        row = poll(store, backend, attend=True)
        assert (row["status"], row["cleanup_due"], backend.acted) == ("Error", 1, [])
        backend.log = "RuntimeError: no"
        row = poll(store, backend, attend=True)
        assert (row["cleanup_due"], backend.acted) == (0, [("advance", JOB)])
        assert row["failure"]

    def test_a_vanished_job_is_cleaned_up_once_it_counts_as_lost(
        self, store: JobStore, backend: DictatedBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        backend.says = Observation(None)
        poll(store, backend, attend=True)
        assert backend.acted == []
        assert poll(store, backend, attend=True)["status"] == "Error"
        poll(store, backend, attend=True)
        assert backend.acted == [("advance", JOB)]

    def test_a_cleanup_that_failed_is_repeated(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says, backend.away = Observation(JobState.COMPLETE, due=True), True
        assert poll(store, backend, attend=True)["cleanup_due"] == 1
        backend.away = False
        assert poll(store, backend, attend=True)["cleanup_due"] == 0

    def test_a_job_is_submitted_again(self, store: JobStore, backend: DictatedBackend) -> None:
        backend.says = NODE_FAILED
        row = poll(store, backend, attend=True)
        assert (row["status"], row["message"]) == ("Pending", "queued again")
        assert backend.acted == [("attempt 2 without ('n1',)", "Node failed (infra; retry 1 of 2)")]
        assert row["failure"] is None

    def test_a_retry_that_does_not_get_through_is_repeated(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says, backend.refuses_retries = NODE_FAILED._replace(due=True), True
        assert poll(store, backend, attend=True)["status"] == "Pending"
        assert backend.acted == [], "its credentials are still needed"
        backend.refuses_retries = False
        assert poll(store, backend, attend=True)["message"] == "queued again"

    def test_a_used_up_budget_ends_the_job(self, store: JobStore, backend: DictatedBackend) -> None:
        attempts = (Attempt(1), Attempt(2, "infra"), Attempt(3, "infra"))
        backend.says = NODE_FAILED._replace(attempts=attempts)
        row = poll(store, backend, attend=True)
        assert row["status"] == "Error"
        assert row["message"] == "Node failed; tried again 2 times after such ends (infra)"
        assert backend.acted == []

    @pytest.mark.parametrize("attend", [True, False])
    @pytest.mark.parametrize("state", [JobState.RUNNING, JobState.COMPLETE])
    def test_the_log_of_a_later_attempt_does_not_explain_an_earlier_one(
        self, store: JobStore, backend: DictatedBackend, attend: bool, state: JobState
    ) -> None:
        """Another process submits the job again between the look at its state and at its log."""
        second = Observation(state, "the second one", attempts=(Attempt(1), Attempt(2, "infra")))
        backend.says, backend.log, backend.meanwhile = PROGRAM_FAILED, "", second
        row = poll(store, backend, attend=attend)
        assert row["status"] == "Pending"
        assert row["poll_error"] == "another process submitted the job again"
        assert row["failure"] is None
        assert poll(store, backend, attend=attend)["status"] == state.value

    def test_a_cancelled_job_is_not_submitted_again(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        store.request_cancel(JOB)
        backend.says = NODE_FAILED
        assert poll(store, backend, attend=True)["status"] == "Canceled"
        assert backend.acted == []

    def test_a_process_without_the_lease_only_looks(
        self, store: JobStore, backend: DictatedBackend, tmp_path: Path
    ) -> None:
        backend.says = NODE_FAILED._replace(due=True)
        program = (
            "import sys; from tao_sdk.job_store import JobStore\n"
            f"with JobStore({str(tmp_path / 'jobs.db')!r}) as store:\n"
            "    with store.lease('attend dictated', 60) as mine:\n"
            "        print(mine, flush=True); sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "True\n"
            row = poll(store, backend, attend=True)
            assert (row["status"], backend.acted) == ("Pending", [])
            holder.communicate()
        poll(store, backend, attend=True)
        assert backend.acted, "the lease is free again"


class TestTrouble:
    """What goes wrong while acting is repeated, and hides no state."""

    def test_what_is_not_finished_stays_due(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says, backend.leaves_it = Observation(JobState.COMPLETE, due=True), True
        assert poll(store, backend, attend=True)["cleanup_due"] == 1
        backend.leaves_it = False
        Refresher(store, backend).clean_up()
        assert store.jobs_to_clean("dictated") == []

    def test_an_error_of_any_kind_is_logged_and_repeated(
        self, store: JobStore, backend: DictatedBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        backend.says = Observation(JobState.COMPLETE, due=True)
        backend.fails = OSError(28, "No space left on device")
        row = poll(store, backend, attend=True)
        assert (row["status"], row["cleanup_due"]) == ("Complete", 1)
        assert "No space left on device" in caplog.text

    @pytest.mark.parametrize(
        ("error", "logged"), [(BackendUnreachableError("away"), 0), (KeyError("instance"), 1)]
    )
    def test_a_sweep_that_fails_ends_no_poll(
        self,
        store: JobStore,
        caplog: pytest.LogCaptureFixture,
        error: Exception,
        logged: int,
    ) -> None:
        class Sweeping(DictatedBackend):
            def sweep(self) -> None:
                raise error

        assert poll(store, Sweeping(), attend=True)["status"] == "Running"
        assert caplog.text.count("tidying up dictated failed") == logged

    def test_a_cancellation_wins_over_a_retry(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says = NODE_FAILED
        rows = store.jobs_by_id([JOB])
        store.request_cancel(JOB)  # after the rows were read
        Refresher(store, backend).refresh(rows, attend=True)
        assert (poll(store, backend, attend=True)["status"], backend.acted) == ("Canceled", [])

    def test_whoever_finds_the_lease_taken_cleans_up_after_it(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says = Observation(JobState.COMPLETE, due=True)
        cleaned = threading.Event()

        def clean_up() -> None:
            Refresher(store, backend).clean_up(patience=60)
            cleaned.set()

        with store.lease("attend dictated", 60) as mine:
            assert mine
            assert poll(store, backend, attend=True)["cleanup_due"] == 1
            waiting = threading.Thread(target=clean_up)
            waiting.start()
            assert not cleaned.wait(0.2)
        waiting.join(60)
        assert cleaned.is_set()
        assert backend.acted == [("advance", JOB)]


class TestDoubt:
    def test_a_failure_whose_log_calls_for_a_retry(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says = PROGRAM_FAILED
        backend.log = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
        poll(store, backend, attend=True)
        assert [what for what, _ in backend.acted] == ["attempt 2 without ()"]

    def test_a_failure_of_the_program_is_final_and_explained(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says = PROGRAM_FAILED
        backend.log = "ModuleNotFoundError: No module named 'x'"
        row = poll(store, backend, attend=True)
        assert (row["status"], backend.acted) == ("Error", [])
        assert "ERR_PROGRAM" in row["failure"]

    def test_an_unread_log_leaves_the_job_open(
        self, store: JobStore, backend: DictatedBackend
    ) -> None:
        backend.says, backend.log = PROGRAM_FAILED, None
        row = poll(store, backend, attend=True)
        assert row["status"] == "Pending"
        assert "cannot be read" in row["poll_error"]
