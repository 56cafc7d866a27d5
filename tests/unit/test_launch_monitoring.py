"""Reports about a launched job: they end with the job, and not before."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tao_sdk.cli import exit_codes
from tao_sdk.cli import launch as launch_command
from tao_sdk.cli.session import Session
from tao_sdk.errors import JobNotFoundError, WaitTimeoutError
from tao_sdk.launch import reports, status_command
from tao_sdk.models import JobStatus

pytestmark = pytest.mark.seed("000.6")
MINUTE = 60.0


class Scripted:
    """A platform whose clock goes on only while somebody waits."""

    def __init__(self, *changes: tuple[float, str]) -> None:
        self._changes = changes
        self.now = 0.0
        self.polls = 0

    def clock(self) -> float:
        return self.now

    def get_job_status(self, job_id: str) -> JobStatus:
        self.polls += 1
        state = [state for at, state in self._changes if at <= self.now][-1]
        return JobStatus(job_id, state, "")

    def wait(self, job_id: str, timeout: float | None = None) -> JobStatus:
        assert timeout is not None
        self.now += timeout
        status = self.get_job_status(job_id)
        if not status.terminal:
            raise WaitTimeoutError("not yet")
        return status


def seen(sdk: Scripted, minutes: float) -> Iterator[tuple[float, str]]:
    for status in reports(sdk, "j", minutes, clock=sdk.clock):
        yield sdk.now / MINUTE, status.status


@pytest.mark.seed("001.3")
@pytest.mark.parametrize("minutes", [1, 5, 15])
def test_a_report_every_so_many_minutes_until_the_end(minutes: float) -> None:
    sdk = Scripted((0, "Running"), (62 * MINUTE, "Complete"))
    *before, last = seen(sdk, minutes)
    assert [at for at, _ in before] == [n * minutes for n in range(int(61 / minutes) + 1)]
    assert last[1] == "Complete"


@pytest.mark.seed("001.3")
def test_days_in_a_queue_do_not_end_it() -> None:
    sdk = Scripted((0, "Pending"), (3 * 24 * 60 * MINUTE, "Canceled"))
    found = list(seen(sdk, 5))
    assert {state for _, state in found[:-1]} == {"Pending"}
    assert len(found) > 3 * 24 * 12
    assert found[-1][1] == "Canceled"


def test_a_change_is_told_before_the_next_report_is_due() -> None:
    sdk = Scripted((0, "Pending"), (40, "Running"), (20 * MINUTE, "Error"))
    found = list(seen(sdk, 60))
    assert [state for _, state in found] == ["Pending", "Running", "Error"]
    assert found[1][0] * MINUTE < 40 + 30


def test_a_platform_is_not_asked_all_the_time() -> None:
    sdk = Scripted((0, "Running"), (20, "Complete"))
    list(seen(sdk, 1e-9))
    assert sdk.polls <= 2 * 21


def test_a_job_that_has_ended_is_told_once() -> None:
    assert list(seen(Scripted((0, "Complete")), 5)) == [(0, "Complete")]


def test_a_platform_that_cannot_be_asked_is_no_end() -> None:
    """The state stays what it was, and the message says why: see the platforms' own tests."""
    sdk = Scripted((0, "Running"), (10_000 * MINUTE, "Complete"))
    assert len(list(itertools.islice(seen(sdk, 5), 1000))) == 1000


def test_a_job_that_was_removed_is_said() -> None:
    class Gone(Scripted):
        def wait(self, job_id: str, timeout: float | None = None) -> JobStatus:
            raise JobNotFoundError(f"no job {job_id}")

    with pytest.raises(JobNotFoundError):
        list(seen(Gone((0, "Running")), 5))


def test_the_command_that_tells_from_any_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAO_SDK_STATE_DIR", raising=False)
    assert status_command("abc") == "tao-sdk status abc"
    assert status_command("abc", "/my runs/a.json") == (
        "tao-sdk --state '/my runs/a.json' status abc"
    )
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path))
    assert status_command("abc") == f"TAO_SDK_STATE_DIR={tmp_path} tao-sdk status abc"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TAO_SDK_STATE_DIR", "~/state")
    assert status_command("abc") == f"TAO_SDK_STATE_DIR={tmp_path}/state tao-sdk status abc"
    assert status_command("abc", "a.json") == f"tao-sdk --state {tmp_path}/a.json status abc"


def test_what_a_slow_submission_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow(*_: object) -> None:
        logging.getLogger("tao_sdk.brev").info("an instance is being made")
        raise KeyboardInterrupt

    monkeypatch.setattr(launch_command, "submit", slow)
    session = Session()
    session.use_state_file(tmp_path / "state.json")
    anything: Any = SimpleNamespace(job_id="never-submitted")
    code = launch_command._run(session, anything, anything, anything, watched=False)
    said = capsys.readouterr().err
    assert code == exit_codes.DETACHED
    assert "an instance is being made\n" in said
    assert "detached; nothing was submitted" in said
