"""`explain` of jobs that have not started, on a platform that a test dictates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from lab.paced import Cluster, FakeClock, PacedBackend, PacedSDK, add_jobs
from tao_sdk.cli.explain import command
from tao_sdk.cli.session import Session
from tao_sdk.errors import BackendUnreachableError, PlatformError
from tao_sdk.failures import Evidence
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import JobRef, Observation

NO_IMAGE = "ErrImagePull: manifest for registry.example/tao:0 not found"


class WaitingBackend(PacedBackend):
    """All jobs wait; the one called `stuck` does so for ever."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.fails: Exception | None = None

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        return {job.job_id: Observation(JobState.PENDING, "waits") for job in jobs}

    def stuck(self, job: JobRef) -> Evidence | None:
        if self.fails is not None:
            raise self.fails
        if job.job_id != "stuck":
            return None
        return Evidence(reason=NO_IMAGE, never_started=True)


class WaitingSDK(PacedSDK):
    backend: WaitingBackend

    def _make_backend(self) -> WaitingBackend:
        return WaitingBackend(self._cluster)


@pytest.fixture
def sdk(tmp_path: Path) -> Iterator[WaitingSDK]:
    with WaitingSDK(Cluster(FakeClock(), tmp_path), tmp_path / "run.json") as opened:
        add_jobs(opened.store, "stuck", "queued")
        yield opened


@pytest.fixture
def explain(
    sdk: WaitingSDK, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """Runs the command; what it wrote to stdout and stderr."""

    def run(*words: str) -> tuple[str, str]:
        session = Session()
        session.use_state_file(tmp_path / "run.json")
        session.place._sdks["paced"] = sdk
        command.main(words, standalone_mode=False, obj=session)
        return capsys.readouterr()

    return run


def test_a_job_that_will_never_start_is_explained(explain: Callable[..., tuple[str, str]]) -> None:
    out, err = explain("stuck", "queued")
    first, second = out.split("\n\n")
    assert "state       Pending" in first
    assert f"evidence    {NO_IMAGE}" in first
    assert "class       ERR_IMAGE" in first
    assert "suggestion  " in first
    assert "whole log" not in first
    assert second == "queued  has not ended: Pending\n"
    assert err == ""


def test_as_documents(explain: Callable[..., tuple[str, str]]) -> None:
    stuck, queued = map(json.loads, explain("--json", "stuck", "queued")[0].splitlines())
    assert (stuck["status"], stuck["failed"], stuck["message"]) == ("Pending", False, "waits")
    assert stuck["failure"]["evidence"][0] == NO_IMAGE
    assert queued["failure"] is None
    assert "has not ended" in queued["message"]


def test_nothing_is_written_about_a_pending_job(
    sdk: WaitingSDK, explain: Callable[..., tuple[str, str]]
) -> None:
    explain("stuck")
    row = sdk.store.get_job("stuck")
    assert row is not None
    assert (row["status"], row["failure"]) == ("Pending", None)


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (BackendUnreachableError("away"), ""),
        (PlatformError("no"), "tao-sdk: no (jobs of paced are shown as last known)\n"),
    ],
)
def test_a_platform_that_cannot_say(
    sdk: WaitingSDK, explain: Callable[..., tuple[str, str]], fails: Exception, said: str
) -> None:
    sdk.backend.fails = fails
    out, err = explain("stuck", "queued")
    assert out.startswith("stuck  has not ended: Pending\n")
    assert err == said


def test_a_platform_that_fails_is_complained_about_once(
    sdk: WaitingSDK, explain: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PlatformError("no")

    monkeypatch.setattr(sdk.backend, "observe", refuse)
    _, err = explain("stuck", "queued")
    assert err == "tao-sdk: no (jobs of paced are shown as last known)\n"
