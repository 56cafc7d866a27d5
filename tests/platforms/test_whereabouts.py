"""Jobs of another daemon, cluster or machine are neither judged nor touched."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tao_sdk.errors import BackendUnreachableError, UnsupportedError
from tao_sdk.failures import Evidence
from tao_sdk.job_store import JobStore, NewJob, StatusUpdate
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import (
    CANCELED_AND_GONE,
    MISSING,
    Backend,
    CallLog,
    JobIdentity,
    JobRef,
    LogChunk,
    LogSource,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.results import results_of
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.result_record import ResultRecord, record_name

HERE, THERE = (f"{digit * 8}-1111-4111-8111-111111111111" for digit in "12")
RUNNING = Observation(JobState.RUNNING)
WHY = "the job is on another island"
RECORD = (
    '{{"version":1,"job_id":"{0}","rank":0,"attempt":1,"exit_code":0,"started_at":'
    '"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:05Z","host":"h"}}'
)


class Wire:
    def __init__(self) -> None:
        self.calls = CallLog()


class IslandBackend(Backend):
    """Has some jobs, and knows which others are another island's."""

    platform = "island"

    def __init__(self) -> None:
        self.transport = Wire()
        self.has: dict[str, Observation] = {}
        self.absent = MISSING
        self.is_silent = False
        self.acted: list[str] = []

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        self.transport.calls.record("observe")
        return {job.job_id: self.has.get(job.job_id, self.absent) for job in jobs}

    def elsewhere(self, jobs: Sequence[JobRef]) -> Mapping[str, str]:
        self.transport.calls.record(f"elsewhere {len(jobs)}")
        if self.is_silent:
            raise BackendUnreachableError("no ferry today")
        return {job.job_id: WHY for job in jobs if job.native["island"] != "ours"}

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        self.acted += [f"settle {job.job_id}" for job in jobs]
        return dict.fromkeys(job.job_id for job in jobs)

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        self.acted += [f"advance {job.job_id}" for job in jobs]
        return [job.job_id for job in jobs]

    def cancel(self, job: JobRef) -> None:
        self.acted.append(f"cancel {job.job_id}")
        self.has[job.job_id] = Observation(JobState.CANCELED, cancel_aware=True)

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        return [PolledLog(lambda **_: LogChunk((), more=False, cursor=""))]

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        self.acted += [f"evidence {job.job_id}" for job in jobs]
        return {job.job_id: RawEvidence(Evidence(exit_code=1)) for job in jobs}

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        self.acted.append(f"records {job.job_id}")
        return []

    def replicas(self, job: JobRef) -> list[dict[str, object]]:
        return [{"name": "one"}] if job.job_id in self.has else []

    def result_source(self, job: JobRef) -> None:
        self.acted.append(f"results {job.job_id}")

    def delete_artifacts(self, job: JobRef) -> bool:
        self.acted.append(f"delete {job.job_id}")
        return True

    # -- not called here

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        raise NotImplementedError

    def submit(self, plan: Plan) -> Submission:
        raise NotImplementedError


class IslandSDK(PlatformSDK):
    platform = "island"

    def _make_backend(self) -> IslandBackend:
        return IslandBackend()


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IslandSDK]:
    monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
    with JobStore(tmp_path / "jobs.db") as store:
        for job_id in (HERE, THERE):
            local = str(tmp_path / job_id)
            row = NewJob(job_id, "", "train", "w", "island", "token", "", local_results_dir=local)
            store.begin_submissions([row])
            native = {"island": "ours" if job_id == HERE else "theirs"}
            store.confirm_submission(job_id, backend_job_id="77", native=native)
        yield IslandSDK(store=store)


def backend_of(sdk: IslandSDK) -> IslandBackend:
    assert isinstance(sdk.backend, IslandBackend)
    return sdk.backend


def end(sdk: IslandSDK, job_id: str, status: str = "Error") -> None:
    sdk.store.rows_after(
        [StatusUpdate(job_id, status=status, exit_code=1)], sdk.store.jobs_by_id([job_id])
    )


class TestPolls:
    def test_only_jobs_that_are_not_there_are_asked_about_and_at_once(self, sdk: IslandSDK) -> None:
        backend = backend_of(sdk)
        backend.has = {HERE: RUNNING, THERE: RUNNING}
        sdk.get_statuses([HERE, THERE])
        assert list(backend.transport.calls) == ["observe"]
        backend.has = {}
        sdk.get_statuses([HERE, THERE])
        assert list(backend.transport.calls)[1:] == ["observe", "elsewhere 2"]

    @pytest.mark.parametrize("absent", [MISSING, CANCELED_AND_GONE])
    def test_absence_ends_jobs_of_this_platform_only(
        self, sdk: IslandSDK, absent: Observation
    ) -> None:
        backend_of(sdk).absent = absent
        for _ in range(2):
            seen = sdk.get_statuses([HERE, THERE])
        assert seen[HERE].terminal
        assert not seen[THERE].terminal
        assert WHY in seen[THERE].message
        assert f"records {THERE}" not in backend_of(sdk).acted

    def test_a_platform_that_cannot_say_so_ends_none(self, sdk: IslandSDK) -> None:
        backend = backend_of(sdk)
        backend.is_silent = True
        backend.has = {HERE: RUNNING}
        for _ in range(2):
            seen = sdk.get_statuses([HERE, THERE])
        assert "cannot reach" not in seen[HERE].message
        assert not seen[THERE].terminal
        assert "no ferry today" in seen[THERE].message

    def test_a_record_on_this_machine_counts_wherever_the_job_is(self, sdk: IslandSDK) -> None:
        row = sdk.store.get_job(THERE)
        assert row is not None
        folder = Path(row["local_results_dir"])
        folder.mkdir()
        (folder / record_name(0)).write_text(RECORD.format(THERE))
        assert sdk.get_job_status(THERE).status == "Complete"
        assert backend_of(sdk).acted == []

    def test_the_record_of_one_rank_is_no_end_of_all(self, sdk: IslandSDK, tmp_path: Path) -> None:
        job_id = "33333333-1111-4111-8111-111111111111"
        folder = tmp_path / job_id
        folder.mkdir()
        (folder / record_name(0)).write_text(RECORD.format(job_id))
        row = NewJob(
            job_id,
            "",
            "train",
            "w",
            "island",
            "token",
            "",
            request={"num_nodes": 2},
            local_results_dir=str(folder),
        )
        sdk.store.begin_submissions([row])
        sdk.store.confirm_submission(job_id, backend_job_id="78", native={"island": "theirs"})
        for _ in range(3):
            assert not sdk.get_job_status(job_id).terminal


class TestActs:
    def test_a_job_that_is_elsewhere_is_not_cancelled(self, sdk: IslandSDK) -> None:
        assert sdk.cancel_job(THERE) is False
        row = sdk.store.get_job(THERE)
        assert row is not None
        assert not row["cancel_requested_at"], "the platform got no such request"
        assert backend_of(sdk).acted == []

    def test_cancelling_a_job_that_is_here_asks_nothing_more(self, sdk: IslandSDK) -> None:
        backend_of(sdk).has = {HERE: RUNNING}
        assert sdk.cancel_job(HERE) is True
        assert set(backend_of(sdk).transport.calls) == {"observe"}

    def test_artefacts_are_removed_by_their_own_platform_only(self, sdk: IslandSDK) -> None:
        for job_id in (HERE, THERE):
            end(sdk, job_id, "Complete")
        assert sdk.delete_job_artifacts(HERE) is True
        assert sdk.delete_job_artifacts(THERE) is False
        assert backend_of(sdk).acted == [f"delete {HERE}"]

    def test_results_are_read_from_their_own_platform_only(self, sdk: IslandSDK) -> None:
        with sqlite3.connect(sdk.store.path) as connection:
            connection.execute("UPDATE jobs SET local_results_dir='', results_dir='coconut://x'")
        with pytest.raises(UnsupportedError):
            results_of(sdk, HERE)
        with pytest.raises(BackendUnreachableError, match=WHY):
            results_of(sdk, THERE)
        assert backend_of(sdk).acted == [f"results {HERE}"]

    def test_only_own_jobs_are_explained(self, sdk: IslandSDK) -> None:
        for job_id in (HERE, THERE):
            end(sdk, job_id)
        assert sdk.get_failure_analysis(HERE) is not None
        assert sdk.get_failure_analysis(THERE) is None
        assert backend_of(sdk).acted == [f"evidence {HERE}"]

    def test_only_own_jobs_are_cleaned_up(self, sdk: IslandSDK) -> None:
        for job_id in (HERE, THERE):
            end(sdk, job_id, "Complete")
            sdk.store.rows_after(
                [StatusUpdate(job_id, cleanup_due=True)], sdk.store.jobs_by_id([job_id])
            )
        sdk.clean_up()
        assert backend_of(sdk).acted == [f"advance {HERE}"]
        assert [row["job_id"] for row in sdk.store.jobs_to_clean("island")] == [THERE]

    def test_lost_submissions_are_settled_by_their_own_platform_only(self, sdk: IslandSDK) -> None:
        ids = []
        for island in ("ours", "theirs"):
            ids.append(f"{island:x<8.8}-1111-4111-8111-111111111111")
            native = {"island": island}
            row = NewJob(ids[-1], "", "train", "w", "island", "token", "", native=native)
            sdk.store.begin_submissions([row])
        assert sdk.reconcile() == ids[:1]
        assert backend_of(sdk).acted == [f"settle {ids[0]}"]


class TestLogsAndReplicas:
    def test_an_empty_log_may_be_elsewhere(self, sdk: IslandSDK) -> None:
        assert sdk.get_job_logs(HERE) == ""
        with pytest.raises(BackendUnreachableError, match=WHY):
            sdk.get_job_logs(THERE)

    def test_a_followed_log_does_not_wait_for_a_job_that_is_elsewhere(self, sdk: IslandSDK) -> None:
        with pytest.raises(BackendUnreachableError, match=WHY):
            next(sdk.stream_logs(THERE))

    def test_no_replicas_may_mean_that_they_are_elsewhere(self, sdk: IslandSDK) -> None:
        backend_of(sdk).has = {HERE: RUNNING}
        assert sdk.get_job_replicas(HERE) == [{"name": "one"}]
        with pytest.raises(BackendUnreachableError, match=WHY):
            sdk.get_job_replicas(THERE)
