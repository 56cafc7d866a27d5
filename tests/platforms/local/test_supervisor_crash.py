"""A supervisor that is killed at each of its own steps: what is said about the job stays true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tao_sdk import LocalSDK
from tao_sdk.job_store import NewJob
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.local import transport
from tao_sdk.platforms.local.launch import JobFolder, Launch
from tao_sdk.process_identity import ProcessIdentity

# Dies instead of writing down the state (or right after writing it).
DYING = """
import os, signal, sys
from tao_sdk.platforms.local import supervisor
real = supervisor.Supervisor._write_state
def write_state(self, phase, message):
    if sys.argv[2] == "after":
        real(self, phase, message)
    if phase == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[2] == "before":
        real(self, phase, message)
supervisor.Supervisor._write_state = write_state
supervisor.main()
"""


@pytest.mark.parametrize(
    ("phase", "moment", "started", "state"),
    [
        ("starting", "before", False, "Error"),
        ("starting", "after", False, "Error"),
        ("running", "before", False, "Error"),
        ("running", "after", False, "Error"),
        ("done", "before", True, "Complete"),
        ("done", "after", True, "Complete"),
    ],
)
def test_nothing_runs_that_is_not_written_down(
    sdk: LocalSDK, tmp_path: Path, phase: str, moment: str, started: bool, state: str
) -> None:
    mark = tmp_path / "started"
    plan = sdk.plan(command=f"touch {mark}", gpu_count=0)
    launch, _staged = plan.payload
    assert isinstance(launch, Launch)
    folder = JobFolder(Path(launch.folder))
    sdk.backend.prepare()
    folder.path.mkdir(parents=True)
    sdk.store.begin_submissions(
        [
            NewJob(
                job_id=plan.job_id,
                network_arch="",
                action="",
                workspace_id="",
                backend_type="local",
                token=launch.token,
                owner="",
                native=plan.intent,
                results_dir=plan.results_dir,
            )
        ]
    )
    subprocess.run([sys.executable, "-c", DYING, phase, moment], input=launch.dumps(), check=False)
    claim = eventually(folder.read_claim)
    supervisor = ProcessIdentity.parse(claim["supervisor"])
    assert supervisor is not None
    eventually(lambda: not supervisor.alive)
    assert sdk.wait(plan.job_id, timeout=60).status == state
    assert mark.exists() is started


FULL_DISK = """
import errno
from tao_sdk.platforms.local import supervisor
supervisor._FULL_DISK_SECONDS = 0.01
real, failures = supervisor._write, []
def write(path, value):
    if value.get("phase") == "done" and len(failures) < 3:
        failures.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")
    real(path, value)
supervisor._write = write
supervisor.main()
"""


def test_a_full_disk_at_the_end_does_not_change_the_outcome(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        transport, "_START", f"import sys; sys.path.append(sys.argv[1])\n{FULL_DISK}"
    )
    job = sdk.create_job(command="true", gpu_count=0)
    assert job.wait(timeout=60).status == "Complete"


def test_a_full_disk_does_not_cost_a_cancelled_job_its_grace(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = FULL_DISK.replace(
        'value.get("phase") == "done"', 'value.get("message") == "being cancelled"'
    )
    monkeypatch.setattr(transport, "_START", f"import sys; sys.path.append(sys.argv[1])\n{full}")
    job = sdk.create_job(
        command='trap "echo saved; exit 0" TERM; echo up; while :; do sleep 0.05; done', gpu_count=0
    )
    eventually(lambda: "up" in sdk.get_job_logs(job.id))
    assert job.cancel()
    assert job.status == "Canceled"
    assert "saved" in sdk.get_job_logs(job.id)


LATE = """
import os, sys, time
from tao_sdk.platforms.local import supervisor
real = supervisor.Supervisor.claim
def claim(self):
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    return real(self)
supervisor.Supervisor.claim = claim
supervisor.main()
"""


def test_a_supervisor_that_comes_after_the_fence_gives_up(
    sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed client, slow supervisor, quick reconciliation: the job never runs."""
    mark, go = tmp_path / "started", tmp_path / "go"
    plan = sdk.plan(command=f"touch {mark}", gpu_count=0)
    launch, _staged = plan.payload
    sdk.backend.prepare()
    Path(launch.folder).mkdir(parents=True)
    late = subprocess.Popen(
        [sys.executable, "-c", LATE, "x", str(go)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert late.stdin is not None
    assert late.stdout is not None
    late.stdin.write(launch.dumps())
    late.stdin.close()
    settled = sdk.backend.settle([JobRef(plan.identity, plan.intent, plan.results_dir)])
    assert settled == {plan.job_id: None}
    go.touch()
    late.stdout.read()  # its end: the supervisor has given up
    late.wait()
    assert not mark.exists()
    assert not Path(launch.folder).exists()
