"""A rank is its whole session: what is in groups of its own is found, told and ended as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tao_sdk import Job, LocalSDK
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.platforms.local.process_groups import Session, end_all
from tao_sdk.process_identity import ProcessIdentity, session_members, start_time, this_host

LONG = 60

# Writes down every SIGTERM that it gets, and ends some time after the first.
LISTENER = """
import os, signal, sys, time
heard = []
signal.signal(signal.SIGTERM, lambda *_: (heard.append(1), print("heard", flush=True)))
os.setpgid(0, 0)
print("up", os.getpid(), flush=True)
while not heard:
    time.sleep(0.01)
time.sleep(0.3)
"""

# As the runner does: the command in a group of its own, signals passed on.
RUNNER = f"""
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {LISTENER!r}])
signal.signal(signal.SIGTERM, lambda *_: os.killpg(child.pid, signal.SIGTERM))
sys.exit(child.wait())
"""


def leader_of(sdk: LocalSDK, job: Job) -> ProcessIdentity:
    state = JobFolder(sdk.work_dir / "jobs" / job.id).read_state() or {}
    leader = ProcessIdentity.parse(state["ranks"][0]["process"])
    assert leader is not None
    return leader


def kill_supervisor(sdk: LocalSDK, job: Job) -> None:
    claim = JobFolder(sdk.work_dir / "jobs" / job.id).read_claim() or {}
    supervisor = ProcessIdentity.parse(claim["supervisor"])
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: not supervisor.alive)


def start(sdk: LocalSDK, command: list[str] | str, gpu_count: int = 0) -> tuple[Job, int]:
    """A running job, and the process of it that is in a group of its own."""
    job = sdk.create_job(command=command, gpu_count=gpu_count)
    eventually(lambda: "up" in sdk.get_job_logs(job.id))
    pid = int(sdk.get_job_logs(job.id).split()[1])
    eventually(lambda: os.getpgid(pid) != leader_of(sdk, job).pid)
    return job, pid


@pytest.fixture
def one_gpu(sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_LOCAL_GPUS", "1")


@pytest.mark.usefixtures("one_gpu")
class TestNothingStaysBehind:
    @pytest.mark.parametrize(
        "command",
        [
            "set -m; sleep 1000 & echo up $!; wait",
            'set -m; (trap "" TERM; while :; do sleep 0.1; done) & echo up $!; wait',
            "set -m; env -i sleep 1000 & echo up $!; wait",
        ],
    )
    def test_when_the_first_process_is_killed(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        monkeypatch.setenv("TAO_GRACE_SECONDS", "1")
        job, child = start(sdk, command, gpu_count=1)
        leader = leader_of(sdk, job)
        os.kill(leader.pid, signal.SIGKILL)
        assert job.wait(timeout=LONG).status == "Error"
        assert start_time(child) is None
        assert session_members(leader.pid) == []
        again = sdk.create_job(command="true", gpu_count=1, when_busy="refuse")
        assert again.wait(timeout=LONG).status == "Complete"

    def test_when_the_command_just_ends(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(command="set -m; sleep 1000 & echo up $!", gpu_count=1)
        assert job.wait(timeout=LONG).status == "Complete"
        assert start_time(int(sdk.get_job_logs(job.id).split()[1])) is None

    def test_when_its_supervisor_was_killed_as_well(self, sdk: LocalSDK) -> None:
        """The job is what still runs of it; a cancellation finds all of that."""
        job, child = start(sdk, "set -m; sleep 1000 & echo up $!; wait", gpu_count=1)
        leader = leader_of(sdk, job)
        kill_supervisor(sdk, job)
        os.killpg(leader.pid, signal.SIGKILL)
        eventually(lambda: session_members(leader.pid) == [child])
        assert job.refresh().status == "Running"
        waiting = sdk.create_job(command="true", gpu_count=1)
        eventually(lambda: "0 free" in waiting.refresh().message)
        assert job.cancel()
        assert start_time(child) is None
        assert waiting.wait(timeout=LONG).status == "Complete", "its GPU is given back"


class TestOneSignalEach:
    @pytest.mark.parametrize("with_supervisor", [True, False])
    def test_who_passes_the_signal_on_is_not_helped(
        self, sdk: LocalSDK, with_supervisor: bool
    ) -> None:
        """Many programs take a second SIGTERM for "at once"."""
        job, _ = start(sdk, [sys.executable, "-c", RUNNER])
        if not with_supervisor:
            kill_supervisor(sdk, job)
        assert job.cancel()
        assert sdk.get_job_logs(job.id).count("heard") == 1

    @pytest.mark.parametrize("with_supervisor", [True, False])
    def test_what_is_left_behind_is_told(self, sdk: LocalSDK, with_supervisor: bool) -> None:
        """Its parent dies of the signal and passes nothing on: then it gets one itself."""
        program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LISTENER!r}])"
        job, child = start(sdk, [sys.executable, "-c", program])
        if not with_supervisor:
            kill_supervisor(sdk, job)
        assert job.cancel()
        assert sdk.get_job_logs(job.id).count("heard") == 1
        assert start_time(child) is None


def test_a_stranger_with_the_same_number_is_left_alone() -> None:
    """A session's number may have become another's, unless the job's own process is in it."""
    stranger = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
    gone = ProcessIdentity(this_host(), stranger.pid, "1")
    session = Session(gone, "the-job")
    assert session.members() == []
    end_all([session], 0, lambda: None)
    assert stranger.poll() is None
    elsewhere = Session(gone._replace(host="another/boot/pid:[1]"), "the-job")
    assert elsewhere.members() == []
    stranger.communicate()


def test_a_process_that_left_the_session_is_not_touched(sdk: LocalSDK, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    job = sdk.create_job(
        command=f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 1000' & "
        f"while [ ! -s {pid_file} ]; do sleep 0.01; done",
        gpu_count=0,
    )
    assert job.wait(timeout=LONG).status == "Complete"
    pid = int(pid_file.read_text())
    assert start_time(pid) is not None
    os.kill(pid, signal.SIGKILL)
