"""The process that forks supervisors: one per client, gone with it, never shared, never missed."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tao_sdk import Job, LocalSDK
from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.local import spawner
from tao_sdk.platforms.local.client import LocalTransport
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.platforms.local.orders import current_umask
from tao_sdk.process_identity import start_time

LONG = 60


def run(sdk: LocalSDK, command: str = "true") -> Job:
    return sdk.create_job(command=command, gpu_count=0)


def output_of(sdk: LocalSDK, command: str) -> str:
    job = run(sdk, command)
    assert job.wait(timeout=LONG).status == "Complete"
    return sdk.get_job_logs(job.id).strip()


def spawner_of(sdk: LocalSDK) -> spawner._Process:
    transport = sdk.backend.transport
    assert isinstance(transport, LocalTransport)
    process = transport._spawner._process
    assert process is not None
    return process


def pid_of(sdk: LocalSDK) -> int:
    return spawner_of(sdk)._process.pid


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_files_of(pid: int) -> list[str]:
    """What its descriptors lead to, by number."""
    found = []
    for descriptor in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda path: int(path.name)):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(descriptor.readlink()))
    return found


def has_ended(pid: int) -> bool:
    return start_time(pid) is None


class TestOneForAllJobs:
    def test_jobs_share_it(self, sdk: LocalSDK) -> None:
        run(sdk)
        first = pid_of(sdk)
        run(sdk)
        assert pid_of(sdk) == first

    def test_many_at_once(self, sdk: LocalSDK) -> None:
        """Each launch has a channel of its own: no job gets another's orders or answer."""
        jobs = sdk.create_jobs(
            [{"command": f"echo {n}", "gpu_count": 0, "env_vars": {"N": str(n)}} for n in range(20)]
        )
        sdk.wait_all([job.id for job in jobs], timeout=LONG)
        assert [sdk.get_job_logs(job.id).strip() for job in jobs] == [str(n) for n in range(20)]
        supervisors = {
            (JobFolder(sdk.work_dir / "jobs" / job.id).read_claim() or {})["supervisor"]
            for job in jobs
        }
        assert len(supervisors) == 20

    def test_no_zombies(self, sdk: LocalSDK) -> None:
        for _ in range(3):
            run(sdk).wait(timeout=LONG)
        # What is left is the next supervisor, and it waits.
        eventually(lambda: len(children_of(pid_of(sdk))) == 1)

    def test_looking_at_jobs_starts_none(self, sdk: LocalSDK) -> None:
        assert sdk.list_jobs() == []
        sdk.reconcile()
        assert "_spawner" not in vars(sdk.backend.transport)


class TestWhatAJobInherits:
    def test_the_mask_is_that_of_the_moment(self, sdk: LocalSDK) -> None:
        assert output_of(sdk, "true") == ""
        previous = os.umask(0o027)
        try:
            assert current_umask() == 0o027
            assert output_of(sdk, "umask") == "0027"
            os.umask(0o002)
            assert output_of(sdk, "umask") == "0002"
        finally:
            os.umask(previous)

    def test_limits_and_priority_are_those_of_the_moment(self, sdk: LocalSDK) -> None:
        """In a process of its own, because priorities cannot be raised again by everybody."""
        program = f"""
import os, resource
from tao_sdk import LocalSDK
sdk = LocalSDK(state_file={str(sdk._state_file)!r}, work_dir={str(sdk.work_dir)!r})
def said():
    job = sdk.create_job(command="ulimit -n; nice", gpu_count=0)
    job.wait(timeout={LONG})
    return sdk.get_job_logs(job.id).split()
said()
resource.setrlimit(resource.RLIMIT_NOFILE, (123, 123))
os.nice(3)
print(*said(), os.getpriority(os.PRIO_PROCESS, 0))
"""
        answer = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        limit, nice, expected = answer.stdout.split()
        assert (limit, nice) == ("123", expected)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 123

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change its groups")
    def test_a_client_that_became_another_user(self, sdk: LocalSDK) -> None:
        """A client that gives up privileges gives them up for the jobs that follow, too."""
        program = f"""
import os
from tao_sdk import LocalSDK
sdk = LocalSDK(state_file={str(sdk._state_file)!r}, work_dir={str(sdk.work_dir)!r})
sdk.create_job(command="true", gpu_count=0).wait(timeout={LONG})
os.setgroups([1002])
os.setgid(1001)
job = sdk.create_job(command="id -G", gpu_count=0)
job.wait(timeout={LONG})
print(sdk.get_job_logs(job.id))
"""
        answer = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert answer.stdout.split() == ["1001", "1002"]

    def test_nothing_of_the_client_is_held(self, sdk: LocalSDK, tmp_path: Path) -> None:
        """Neither its folder nor its open files; but for its one end of the control socket."""
        kept = os.open(tmp_path / "open-in-the-client", os.O_RDWR | os.O_CREAT)
        os.set_inheritable(kept, True)
        try:
            job = run(sdk, "sleep 600")
            process = pid_of(sdk)
            claim = JobFolder(sdk.work_dir / "jobs" / job.id).read_claim() or {}
            supervisor = int(claim["supervisor"].split("|")[1])
            eventually(lambda: children_of(supervisor))
            for pid in (process, supervisor):
                assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
                assert not any("open-in-the-client" in held for held in open_files_of(pid))
            null, also_null, log, *others = open_files_of(supervisor)
            assert (null, also_null) == (os.devnull, os.devnull)
            assert log.endswith("supervisor.log")
            assert not any(held.startswith("socket:") for held in others)
        finally:
            os.close(kept)

    def test_secrets_are_in_no_command_line_nor_file(self, sdk: LocalSDK) -> None:
        secret = "canary-of-the-spawner"  # noqa: S105 - not one
        job = sdk.create_job(command="sleep 600", gpu_count=0, env_vars={"TOKEN": secret})
        process = pid_of(sdk)
        eventually(lambda: job.refresh().status == "Running")  # its files are written
        for pid in (process, *children_of(process)):
            assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        for path in (sdk.work_dir / "jobs" / job.id).iterdir():
            assert secret.encode() not in path.read_bytes()


class TestItsEnd:
    def test_close(self, sdk: LocalSDK) -> None:
        job = run(sdk, "sleep 600")
        process = pid_of(sdk)
        [waiting] = eventually(lambda: set(children_of(process)) - {*supervisors_of(sdk, job)})
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no path is wanted, but a count
        sdk.close()
        assert has_ended(process)
        eventually(lambda: has_ended(waiting))
        assert len(os.listdir("/proc/self/fd")) < before  # noqa: PTH208 - no path is wanted, but a count
        assert sdk.get_job_status(job.id).status in ("Pending", "Running"), "jobs go on"
        assert run(sdk).wait(timeout=LONG).status == "Complete"

    def test_an_object_without_references(self, sdk: LocalSDK, tmp_path: Path) -> None:
        other = LocalSDK(state_file=tmp_path / "state.json", work_dir=tmp_path / "root")
        run(other).wait(timeout=LONG)
        process = pid_of(other)
        del other
        gc.collect()
        eventually(lambda: has_ended(process))

    @pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"])
    def test_a_client_that_ends(self, sdk: LocalSDK, tmp_path: Path, end: str) -> None:
        program = f"""
import os, signal
from tao_sdk import LocalSDK
sdk = LocalSDK(state_file={str(sdk._state_file)!r}, work_dir={str(sdk.work_dir)!r})
job = sdk.create_job(command="while [ ! -e {tmp_path}/go ]; do sleep 0.05; done", gpu_count=0)
print(job.id, sdk.backend.transport._spawner._process._process.pid, flush=True)
{end}
"""
        client = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            check=False,
        )
        assert client.stderr == ""
        job_id, process = client.stdout.split()
        eventually(lambda: has_ended(int(process)))
        (tmp_path / "go").touch()
        assert sdk.wait(job_id, timeout=LONG).status == "Complete"

    def test_a_stopped_one_does_not_hold_up_the_end(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spawner, "_PATIENCE_SECONDS", 0.05)
        run(sdk)
        process = pid_of(sdk)
        os.kill(process, signal.SIGSTOP)
        sdk.close()
        assert has_ended(process)


def supervisors_of(sdk: LocalSDK, *jobs: Job) -> list[int]:
    claims = [JobFolder(sdk.work_dir / "jobs" / job.id).read_claim() or {} for job in jobs]
    return [int(claim["supervisor"].split("|")[1]) for claim in claims]


class TestFork:
    def test_a_forked_child_has_its_own(self, sdk: LocalSDK) -> None:
        """In processes of their own: forking this one, with its threads, would be another test."""
        program = f"""
import os
from tao_sdk import LocalSDK
sdk = LocalSDK(state_file={str(sdk._state_file)!r}, work_dir={str(sdk.work_dir)!r})
sdk.create_job(command="true", gpu_count=0)
def spawner():
    return sdk.backend.transport._spawner._process
mine, control = spawner()._process.pid, spawner()._control.fileno()
pid = os.fork()
if pid == 0:
    assert spawner() is None
    try:
        os.fstat(control)
    except OSError:
        print("closed", flush=True)
    sdk.create_job(command="true", gpu_count=0).wait(timeout={LONG})
    print(spawner()._process.pid, flush=True)
    raise SystemExit  # with all the clean-up of a normal end
_, status = os.waitpid(pid, 0)
assert status == 0
sdk.create_job(command="true", gpu_count=0).wait(timeout={LONG})
assert spawner()._process.pid == mine, "the parent's is as it was"
print(mine)
"""
        answer = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stderr == ""
        word, childs, parents = answer.stdout.split()
        assert word == "closed"
        assert childs != parents
        assert {job.refresh().status for job in sdk.list_jobs()} <= {"Complete", "Running"}


class TestKilled:
    def test_between_jobs(self, sdk: LocalSDK) -> None:
        first = run(sdk, "sleep 600")
        process = pid_of(sdk)
        waiting = eventually(lambda: set(children_of(process)) - {*supervisors_of(sdk, first)})
        for pid in (process, *waiting):
            os.kill(pid, signal.SIGKILL)
        # One that is still dying could be handed the next job, which is then refused.
        eventually(lambda: all(map(has_ended, (process, *waiting))))
        assert run(sdk).wait(timeout=LONG).status == "Complete"
        assert pid_of(sdk) != process
        assert sdk.get_job_status(first.id).status == "Running"

    def test_only_the_parent(self, sdk: LocalSDK) -> None:
        """The next supervisor is there already, and serves; the one after needs a new spawner."""
        run(sdk).wait(timeout=LONG)
        process = pid_of(sdk)
        eventually(lambda: len(children_of(process)) == 1)
        os.kill(process, signal.SIGKILL)
        for _ in range(3):
            assert run(sdk).wait(timeout=LONG).status == "Complete"
        assert pid_of(sdk) != process

    def test_while_a_launch_is_on_its_way(self, sdk: LocalSDK, tmp_path: Path) -> None:
        """Nothing was started, for certain: the job is refused, and never runs later."""
        run(sdk).wait(timeout=LONG)
        process = pid_of(sdk)
        eventually(lambda: len(children_of(process)) == 1)
        stopped = [process, *children_of(process)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        mark = tmp_path / "started"
        with ThreadPoolExecutor(1) as client:
            submission = client.submit(run, sdk, f"touch {mark}")
            eventually(lambda: any(row["phase"] == "submitting" for row in sdk.store.list_jobs()))
            eventually(lambda: waiting_for_an_answer())
            for pid in stopped:
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(SubmissionRejectedError, match="did not start"):
                submission.result(timeout=LONG)
        assert run(sdk).wait(timeout=LONG).status == "Complete"
        assert not mark.exists()

    def test_one_that_cannot_start_says_why(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spawner, "_START", "raise SystemExit('no such interpreter')")
        for _ in range(2):
            with pytest.raises(SubmissionRejectedError, match="no such interpreter"):
                run(sdk)
        monkeypatch.undo()
        monkeypatch.setenv("TAO_SDK_STATE_DIR", str(sdk.work_dir))
        assert run(sdk).wait(timeout=LONG).status == "Complete"

    def test_one_that_cannot_even_be_tried_leaves_no_trace(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(SubmissionRejectedError, match="/no/such/python"):
            run(sdk)
        assert sdk.list_jobs() == []


class TestStopped:
    @pytest.mark.parametrize("the_next_supervisor_too", [True, False])
    def test_a_job_is_refused_for_good_and_the_next_one_runs(
        self,
        sdk: LocalSDK,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        the_next_supervisor_too: bool,
    ) -> None:
        run(sdk).wait(timeout=LONG)
        process = pid_of(sdk)
        eventually(lambda: len(children_of(process)) == 1)
        [waiting] = children_of(process)
        stopped = [process, waiting] if the_next_supervisor_too else [process]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        if not the_next_supervisor_too:
            run(sdk).wait(timeout=LONG)  # by the supervisor that was ready
        mark = tmp_path / "started"
        with monkeypatch.context() as patched:
            patched.setattr(spawner, "_ANSWER_SECONDS", 0.2)
            patched.setattr(spawner, "_PATIENCE_SECONDS", 0.05)
            with pytest.raises(BackendUnreachableError, match=r"did not answer within 0\.2 s"):
                run(sdk, f"touch {mark}")
        if the_next_supervisor_too:
            os.kill(waiting, signal.SIGCONT)
            eventually(lambda: has_ended(waiting))
        assert run(sdk).wait(timeout=LONG).status == "Complete"
        assert pid_of(sdk) != process
        assert not mark.exists()


def waiting_for_an_answer() -> bool:
    """Is a thread of this process blocked in `_receive`?"""
    frames = sys._current_frames().values()
    names = [frame.f_code.co_name for top in frames for frame in walk(top)]
    return "_receive" in names


def walk(frame: object) -> list[object]:
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back  # type: ignore[attr-defined]
    return found


class TestTheNextSupervisor:
    """One is called to its channel while the row of its job is being written."""

    def test_one_that_no_job_came_for_serves_the_next(self, sdk: LocalSDK) -> None:
        sdk.backend.prepare()
        called = channel_of(sdk)
        sdk.backend.prepare()
        assert channel_of(sdk) is called
        assert run(sdk).wait(timeout=LONG).status == "Complete"
        assert called.fileno() == -1

    def test_one_that_was_killed_meanwhile_costs_no_job(self, sdk: LocalSDK) -> None:
        sdk.backend.prepare()
        process = pid_of(sdk)

        def called() -> list[int]:
            """It lets go of the client's control socket when it has its channel."""
            return [pid for pid in children_of(process) if open_files_of(pid)[0] == os.devnull]

        [pid] = eventually(called)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: spawner._has_ended(channel_of(sdk)))
        assert run(sdk).wait(timeout=LONG).status == "Complete"
        assert pid_of(sdk) == process

    def test_a_client_that_changed_calls_another(self, sdk: LocalSDK) -> None:
        sdk.backend.prepare()
        called, process = channel_of(sdk), pid_of(sdk)
        soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0 if soft else min(1, hard), hard))
        try:
            assert run(sdk).wait(timeout=LONG).status == "Complete"
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
        assert called.fileno() == -1
        assert has_ended(process)

    def test_a_forked_child_lets_go_of_it(self, sdk: LocalSDK) -> None:
        program = f"""
import os
from tao_sdk import LocalSDK
sdk = LocalSDK(state_file={str(sdk._state_file)!r}, work_dir={str(sdk.work_dir)!r})
sdk.backend.prepare()
called = sdk.backend.transport._spawner._called
pid = os.fork()
if pid == 0:
    assert called.fileno() == -1
    assert sdk.backend.transport._spawner._called is None
    raise SystemExit
assert os.waitpid(pid, 0)[1] == 0
sdk.create_job(command="true", gpu_count=0).wait(timeout={LONG})
"""
        subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def channel_of(sdk: LocalSDK) -> socket.socket:
    transport = sdk.backend.transport
    assert isinstance(transport, LocalTransport)
    channel = transport._spawner._called
    assert channel is not None
    return channel


class TestTheChannel:
    def test_a_launch_cut_off_starts_nothing(self, sdk: LocalSDK, tmp_path: Path) -> None:
        mark = tmp_path / "started"
        plan = sdk.plan(command=f"touch {mark}", gpu_count=0)
        orders, _staged = plan.payload
        sdk.backend.prepare()
        Path(orders.folder).mkdir(parents=True)
        text = orders.dumps()
        transport = sdk.backend.transport
        assert isinstance(transport, LocalTransport)
        for cut in (0, 100, len(text) - 1):
            assert transport._spawner.start(text[:cut]) == b""
        settled = sdk.backend.settle([JobRef(plan.identity, plan.intent, plan.results_dir)])
        assert settled == {plan.job_id: None}
        assert not mark.exists()

    def test_a_client_that_does_not_read_the_answer(self, sdk: LocalSDK) -> None:
        plan = sdk.plan(command="true", gpu_count=0)
        orders, staged = plan.payload
        sdk.backend.prepare()
        for folder in (Path(orders.folder), *staged.folders):
            folder.mkdir(parents=True)
        channel = channel_of(sdk)
        spawner._send(channel, orders.dumps())
        channel.close()
        state = orders.job_folder.state
        eventually(lambda: state.exists() and json.loads(state.read_text())["phase"] == "done")
        assert json.loads(state.read_text())["outcome"] == "complete"

    def test_a_large_launch(self, sdk: LocalSDK) -> None:
        """Larger than any buffer of a socket: it is sent while it is read."""
        values = {f"LARGE_{n}": "x" * 100_000 for n in range(10)}
        job = sdk.create_job(command="echo ${#LARGE_9}", gpu_count=0, env_vars=values)
        assert job.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job.id).strip() == "100000"

    def test_an_answer_is_a_line_whatever_process_holds_the_channel(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A copy of the supervisor's end, as a child forked meanwhile has it, delays nothing."""
        copies = []
        hand_over = spawner.Spawner._hand_over

        def copied(self: spawner.Spawner, channel: socket.socket) -> None:
            copies.append(os.dup(channel.fileno()))
            hand_over(self, channel)

        monkeypatch.setattr(spawner.Spawner, "_hand_over", copied)
        try:
            run(sdk)  # hangs if the end of the channel is waited for
        finally:
            for copy in copies:
                os.close(copy)
        assert copies

    def test_an_interrupted_client(self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C while it waits: it is told which job it was about, and what became of it."""

        def interrupted(_: socket.socket) -> bytes:
            raise KeyboardInterrupt

        monkeypatch.setattr(spawner, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            run(sdk)
        assert caught.value.tao_launch_uncertain is False  # type: ignore[attr-defined]  # put there by a submission
        status = sdk.wait(caught.value.tao_job_id, timeout=LONG)  # type: ignore[attr-defined]  # put there by a submission
        assert status.status in ("Complete", "Canceled")
