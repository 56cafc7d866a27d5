"""The watcher of a store: one at a time, and no platform keeps it from the others."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from tao_sdk import LocalSDK, file_locks
from tao_sdk.errors import StoreBusyError, UnsupportedError
from tao_sdk.job_store import JobStore, NewJob
from tao_sdk.platforms.conformance import eventually
from tao_sdk.process_identity import this_host
from tao_sdk.watcher import AlreadyWatchedError, Change, Watcher, is_watched, pause_after


def silent(_: object) -> None:
    pass


@pytest.fixture
def sdk(tmp_path: Path) -> LocalSDK:
    return LocalSDK(state_file=tmp_path / "s.json", work_dir=tmp_path / "root")


def abandon(sdk: LocalSDK, folder: Path, job_id: str, platform: str = "local") -> None:
    """Leave what a client leaves that is killed right after writing the row."""
    sdk.backend.prepare()
    sdk.store.begin_submissions(
        [
            NewJob(
                job_id=job_id,
                network_arch="",
                action="",
                workspace_id="",
                backend_type=platform,
                token="t",  # noqa: S106 - no password
                owner="",
                native={
                    "folder": str(folder / "root" / "jobs" / job_id),
                    "nodes": 1,
                    "host": this_host(),
                },
            )
        ]
    )


def test_one_watcher_per_store(sdk: LocalSDK, tmp_path: Path) -> None:
    job = sdk.create_job(command="sleep 600", gpu_count=0)
    first = Watcher(tmp_path / "s.json", silent, silent, poll_seconds=0.02)
    thread = threading.Thread(target=first.run)
    thread.start()
    lock = tmp_path / "s.tao.db.watch.lock"
    eventually(lambda: lock.exists() and lock.read_text())
    with pytest.raises(AlreadyWatchedError, match=r"watched already, by process \d+"):
        Watcher(tmp_path / "s.json", silent, silent).run()
    assert job.cancel()
    thread.join(30)
    assert not thread.is_alive()
    Watcher(tmp_path / "s.json", silent, silent).run()


def test_one_watcher_per_store_where_files_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(file_locks, "_flock", refused)
    monkeypatch.setenv("TAO_SDK_STORE_MODE", "network")
    sdk = LocalSDK(state_file=tmp_path / "s.json", work_dir=tmp_path / "root")
    job = sdk.create_job(command="sleep 600", gpu_count=0)
    first = Watcher(tmp_path / "s.json", silent, silent, poll_seconds=0.02)
    thread = threading.Thread(target=first.run)
    thread.start()
    eventually(lambda: is_watched(sdk.store.path))
    with pytest.raises(AlreadyWatchedError, match=rf"watched already, by .*\|{os.getpid()}\|"):
        Watcher(tmp_path / "s.json", silent, silent).run()
    assert job.cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert not is_watched(sdk.store.path)
    assert not is_watched(tmp_path / "none.db")


def test_a_platform_that_is_not_installed_does_not_stop_the_others(
    sdk: LocalSDK, tmp_path: Path
) -> None:
    abandon(sdk, tmp_path, "elsewhere-1", platform="elsewhere")
    sdk.store.confirm_submission("elsewhere-1", backend_job_id="x", native={})
    job = sdk.create_job(command="true", gpu_count=0)
    changes: list[Change] = []
    complaints: list[str] = []
    watcher = Watcher(tmp_path / "s.json", changes.append, complaints.append)
    eventually(lambda: watcher.look() == 0)
    assert complaints == [c for c in complaints if "no platform 'elsewhere'" in c]
    assert len(complaints) == 1
    assert changes[-1].job_id == job.id
    assert changes[-1].status.status == "Complete"


def test_a_submission_abandoned_later_is_settled_by_the_next_poll(
    sdk: LocalSDK, tmp_path: Path
) -> None:
    """Not only at the start: a process that lives for days meets crashes of others, too."""
    assert sdk.get_job_status("nothing").status == "Unknown"
    abandon(sdk, tmp_path, "left-2")
    assert sdk.get_job_status("left-2").status == "Error"


def test_half_submitted_jobs_are_settled(sdk: LocalSDK, tmp_path: Path) -> None:
    """The watcher takes care of what a killed client left."""
    abandon(sdk, tmp_path, "left-1")
    Watcher(tmp_path / "s.json", silent, silent, poll_seconds=0.01).run()
    row = sdk.store.get_job("left-1")
    assert row is not None
    assert (row["status"], row["phase"]) == ("Error", "rejected")


def test_a_job_of_another_program_keeps_no_watcher(sdk: LocalSDK, tmp_path: Path) -> None:
    sdk.store.create_job("old-2", "", "", "", backend_type="local", status="Running")
    Watcher(tmp_path / "s.json", silent, silent, poll_seconds=0.01).run()


def test_a_job_that_another_program_recorded_can_only_be_listed(sdk: LocalSDK) -> None:
    sdk.store.create_job("old-1", "", "", "", backend_type="local", status="Running")
    assert sdk.get_job_status("old-1").status == "Running"
    assert sdk.get_job_logs("old-1") == ""
    assert sdk.cancel_job("old-1") is False
    assert sdk.get_job_replicas("old-1") == []
    assert [job.id for job in sdk.list_jobs()] == ["old-1"]
    with pytest.raises(UnsupportedError, match="recorded by another program"):
        sdk.wait("old-1")


def test_whatever_a_platform_raises_is_logged_and_watching_goes_on(
    sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = sdk.create_job(command="true", gpu_count=0)
    complaints: list[str] = []
    watcher = Watcher(tmp_path / "s.json", silent, complaints.append, poll_seconds=0.01)
    errors: list[Exception] = [
        OverflowError("cannot convert float infinity to integer"),
        StoreBusyError("the store is busy"),
    ]
    ask, active = LocalSDK.get_statuses, JobStore.active_jobs

    def get_statuses(self: LocalSDK, job_ids: list[str]) -> object:
        if len(errors) == 2:
            raise errors.pop(0)
        return ask(self, job_ids)

    def active_jobs(self: JobStore) -> object:
        if len(errors) == 1:
            raise errors.pop()
        return active(self)

    monkeypatch.setattr(LocalSDK, "get_statuses", get_statuses)
    monkeypatch.setattr(JobStore, "active_jobs", active_jobs)
    watcher.run()
    assert complaints == [
        "local: OverflowError: cannot convert float infinity to integer",
        "the job store: the store is busy",
    ]
    assert sdk.get_job_status(job.id).status == "Complete"


@pytest.mark.parametrize(
    ("costs", "pause"),
    [
        ((), 2.0),
        ((9.0, 0.001), 2.0),
        ((9.0, 0.001, 0.001), 2.0),
        ((0.2, 0.1, 9.0), 5.0),
        ((9.0, 9.0, 9.0), 60.0),
    ],
)
def test_costly_polls_are_rare(costs: tuple[float, ...], pause: float) -> None:
    """At most a fiftieth of a processor; a poll that was costly for once does not count."""
    assert pause_after(2.0, costs) == pytest.approx(pause)
