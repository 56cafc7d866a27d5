"""A supervisor that is killed at each of its own steps: what is said about the job stays true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tao_sdk import LocalSDK
from tao_sdk.job_store import NewJob
from tao_sdk.platforms.conformance import eventually
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
    launch, _files = plan.payload
    assert isinstance(launch, Launch)
    folder = JobFolder(Path(launch.folder))
    folder.path.mkdir(parents=True)
    folder.root_marker.touch()
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
