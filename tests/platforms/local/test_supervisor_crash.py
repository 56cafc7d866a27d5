"""A supervisor that is killed at each of its own steps: what is said about the job stays true."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tao_sdk import LocalSDK
from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.local import spawner
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.process_identity import ProcessIdentity

START = """
import sys
sys.path.append(sys.argv[1])
from tao_sdk.platforms.local import spawner_process, supervisor
{fault}
spawner_process.main()
"""


def inject(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Let supervisors that are started from now on have this fault."""
    monkeypatch.setattr(spawner, "_START", START.format(fault=fault))


# Dies instead of writing down the state (or right after writing it).
DYING = """
import os, signal
real = supervisor.Supervisor._write_state
def write_state(self, phase, message):
    if {moment!r} == "after":
        real(self, phase, message)
    if phase == {phase!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    if {moment!r} == "before":
        real(self, phase, message)
supervisor.Supervisor._write_state = write_state
"""


@pytest.mark.parametrize(
    ("phase", "moment", "started", "state"),
    [
        ("running", "before", False, "Error"),
        ("running", "after", False, "Error"),
        ("done", "before", True, "Complete"),
        ("done", "after", True, "Complete"),
    ],
)
def test_nothing_runs_that_is_not_written_down(
    sdk: LocalSDK,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    moment: str,
    started: bool,
    state: str,
) -> None:
    inject(monkeypatch, DYING.format(phase=phase, moment=moment))
    mark = tmp_path / "started"
    job = sdk.create_job(command=f"touch {mark}", gpu_count=0)
    claim = JobFolder(sdk.work_dir / "jobs" / job.id).read_claim()
    assert claim is not None
    supervisor = ProcessIdentity.parse(claim["supervisor"])
    assert supervisor is not None
    eventually(lambda: not supervisor.alive)
    assert job.wait(timeout=60).status == state
    assert mark.exists() is started


NOT_SECURED = """
import os, signal
supervisor.Supervisor._secure_claim = lambda self: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_runs_before_the_claim_is_on_the_disk(
    sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut could undo the claim, and the store would then say "never submitted"."""
    inject(monkeypatch, NOT_SECURED)
    mark = tmp_path / "started"
    job = sdk.create_job(command=f"touch {mark}", gpu_count=0)
    assert job.wait(timeout=60).status == "Error"
    assert not mark.exists()


CLAIM = """
import os, signal
real = supervisor.Supervisor.claim
def claim(self):
    if {moment!r} == "after":
        real(self)
    os.kill(os.getpid(), signal.SIGKILL)
supervisor.Supervisor.claim = claim
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_before_it_has_answered(
    sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    inject(monkeypatch, CLAIM.format(moment=moment))
    mark = tmp_path / "started"
    with pytest.raises(SubmissionRejectedError, match="did not start: it was killed"):
        sdk.create_job(command=f"touch {mark}", gpu_count=0)
    [job] = sdk.list_jobs()
    assert job.status == "Error"
    assert not mark.exists()


FULL_DISK = """
import errno
supervisor._FULL_DISK_SECONDS = 0.01
real, failures = supervisor.write_private, []
def write(path, text):
    if '"phase": "done"' in text and len(failures) < 3:
        failures.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")
    real(path, text)
supervisor.write_private = write
"""


def test_a_full_disk_at_the_end_does_not_change_the_outcome(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(monkeypatch, FULL_DISK)
    job = sdk.create_job(command="true", gpu_count=0)
    assert job.wait(timeout=60).status == "Complete"


def test_a_full_disk_does_not_cost_a_cancelled_job_its_grace(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = FULL_DISK.replace('"phase": "done"', '"message": "being cancelled"')
    inject(monkeypatch, full)
    job = sdk.create_job(
        command='trap "echo saved; exit 0" TERM; echo up; while :; do sleep 0.05; done', gpu_count=0
    )
    eventually(lambda: "up" in sdk.get_job_logs(job.id))
    assert job.cancel()
    assert job.status == "Canceled"
    assert "saved" in sdk.get_job_logs(job.id)


LATE = """
import os, time
real = supervisor.Supervisor.claim
def claim(self):
    while not os.path.exists({go!r}):
        time.sleep(0.01)
    return real(self)
supervisor.Supervisor.claim = claim
"""


def test_a_supervisor_that_comes_after_the_fence_gives_up(
    sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted client, slow supervisor, quick reconciliation: the job never runs."""
    mark, go = tmp_path / "started", tmp_path / "go"
    inject(monkeypatch, LATE.format(go=str(go)))
    plan = sdk.plan(command=f"touch {mark}", gpu_count=0)
    orders, staged = plan.payload
    sdk.backend.prepare()
    with ThreadPoolExecutor(1) as client:
        submission = client.submit(sdk.backend.transport.start, orders, staged)
        eventually(orders.job_folder.supervisor_log.exists)
        settled = sdk.backend.settle([JobRef(plan.identity, plan.intent, plan.results_dir)])
        assert settled == {plan.job_id: None}
        go.touch()
        with pytest.raises(SubmissionRejectedError):
            submission.result(timeout=60)
    assert not mark.exists()
    assert not Path(orders.folder).exists()


REMOVED = """
import syslog
supervisor._FOLDER_CHECK_SECONDS = {seconds}
supervisor._FULL_DISK_SECONDS = 0.01
def tell(level, message):
    with open({told!r}, "a") as out:
        out.write(message)
syslog.syslog = tell
"""


@pytest.mark.parametrize("while_it_runs", [True, False])
@pytest.mark.parametrize("whole_root", [True, False])
def test_without_its_folder_a_supervisor_ends_its_job_and_exits(
    sdk: LocalSDK,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    while_it_runs: bool,
    whole_root: bool,
) -> None:
    told, go = tmp_path / "told", tmp_path / "go"
    seconds = 0.05 if while_it_runs else 600
    inject(monkeypatch, REMOVED.format(told=str(told), seconds=seconds))
    waiting = f"echo up; while [ ! -e {go} ]; do sleep 0.05; done"
    job = sdk.create_job(command=waiting, gpu_count=0)
    eventually(lambda: "up" in sdk.get_job_logs(job.id))
    folder = JobFolder(sdk.work_dir / "jobs" / job.id)
    claim, state = folder.read_claim(), folder.read_state()
    assert claim is not None
    assert state is not None
    shutil.rmtree(sdk.work_dir if whole_root else folder.path)
    if not while_it_runs:
        go.touch()
    for text in (claim["supervisor"], state["ranks"][0]["process"]):
        process = ProcessIdentity.parse(text)
        assert process is not None
        eventually(lambda process=process: not process.alive)
    if while_it_runs:
        assert f"job {job.id} was ended: {folder.path} was removed" in told.read_text()
