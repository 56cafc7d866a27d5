"""What only the local platform does: supervisors, GPU queues, sessions."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tao_sdk import Job, JobStatus, LocalSDK, VirtualEnvSDK
from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    CredentialError,
    JobNotFoundError,
    SubmissionRejectedError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.platforms.backend import JobRef, Plan, Submission
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.platforms.local.orders import Orders
from tao_sdk.platforms.request import MAX_VARIABLE_BYTES
from tao_sdk.process_identity import ProcessIdentity, session_members, start_time

LONG = 60
WAIT_FOR_GO = (
    'echo up; d="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; while [ ! -e "$d/go" ]; do sleep 0.05; done'
)


def folder_of(sdk: LocalSDK, job: Job) -> JobFolder:
    return JobFolder(sdk.work_dir / "jobs" / job.id)


def supervisor_of(sdk: LocalSDK, job: Job) -> ProcessIdentity:
    claim = folder_of(sdk, job).read_claim()
    assert claim is not None
    identity = ProcessIdentity.parse(claim["supervisor"])
    assert identity is not None
    return identity


def job_process_of(sdk: LocalSDK, job: Job) -> ProcessIdentity:
    state = folder_of(sdk, job).read_state()
    assert state is not None
    identity = ProcessIdentity.parse(state["ranks"][0]["process"])
    assert identity is not None
    return identity


def speaking(sdk: LocalSDK, job: Job) -> Callable[[], bool]:
    """Its own first words: "Running" is written down a moment before the command starts."""
    return lambda: "up" in sdk.get_job_logs(job.id)


def running(sdk: LocalSDK, job: Job) -> Callable[[], bool]:
    return lambda: sdk.get_job_status(job.id).status == "Running"


class TestSupervisor:
    def test_killed_supervisor_does_not_kill_the_job(self, sdk: LocalSDK) -> None:
        """Lesson W19: the job goes on, and its own record tells how it ends."""
        job = sdk.create_job(command=f"{WAIT_FOR_GO}; exit 3", gpu_count=0)
        eventually(speaking(sdk, job))
        os.kill(supervisor_of(sdk, job).pid, signal.SIGKILL)
        eventually(lambda: "supervisor was killed" in sdk.get_job_status(job.id).message)
        assert sdk.get_job_status(job.id).status == "Running"
        (Path(job.results_dir) / "go").touch()
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["exit_code"] == 3

    def test_killed_supervisor_and_successful_job(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(command=WAIT_FOR_GO, gpu_count=0)
        eventually(speaking(sdk, job))
        os.kill(supervisor_of(sdk, job).pid, signal.SIGKILL)
        (Path(job.results_dir) / "go").touch()
        assert job.wait(timeout=LONG).status == "Complete"

    def test_everything_killed_is_noticed_and_said(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(command="echo up; sleep 600", gpu_count=0)
        eventually(speaking(sdk, job))
        group = job_process_of(sdk, job).pid
        os.kill(supervisor_of(sdk, job).pid, signal.SIGKILL)
        os.killpg(group, signal.SIGKILL)
        status = job.wait(timeout=LONG)
        assert status.status == "Error"
        assert "out-of-memory killer" in status.message
        analysis = job.explain()
        assert analysis is not None
        assert analysis["err_class"] == "ERR_UNKNOWN"
        assert "out-of-memory" in analysis["suggestion"]

    def test_cancel_works_without_a_supervisor(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(command="echo up; sleep 600", gpu_count=0)
        eventually(speaking(sdk, job))
        process = job_process_of(sdk, job)
        os.kill(supervisor_of(sdk, job).pid, signal.SIGKILL)
        assert job.cancel()
        assert job.status == "Canceled"
        assert not process.alive

    def test_background_processes_do_not_outlive_the_job(
        self, sdk: LocalSDK, tmp_path: Path
    ) -> None:
        pid_file = tmp_path / "pid"
        job = sdk.create_job(command=f"sleep 600 & echo $! > {pid_file}", gpu_count=0)
        assert job.wait(timeout=LONG).status == "Complete"
        assert start_time(int(pid_file.read_text())) is None

    def test_the_command_may_outlive_supervisor_and_shim(self, sdk: LocalSDK) -> None:
        """Only the first process of the session is gone: the job runs, and can be cancelled."""
        job = sdk.create_job(command="echo up; sleep 600; true", gpu_count=0)
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        os.kill(supervisor_of(sdk, job).pid, signal.SIGKILL)
        shim = job_process_of(sdk, job)
        os.kill(shim.pid, signal.SIGKILL)
        eventually(lambda: not shim.alive)
        assert sdk.get_job_status(job.id).status == "Running"
        assert session_members(shim.pid)
        assert job.cancel()
        assert job.status == "Canceled"
        assert not session_members(shim.pid)

    def test_a_caller_with_blocked_signals(self, sdk: LocalSDK) -> None:
        """The mask is inherited; a supervisor that does not hear its signals never ends."""
        blocked = {signal.SIGTERM, signal.SIGCHLD}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            short = sdk.create_job(command="true", gpu_count=0)
            long = sdk.create_job(command="sleep 600", gpu_count=0)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert short.wait(timeout=LONG).status == "Complete"
        assert long.cancel()

    def test_a_job_that_ended_before_the_cancel_was_not_cancelled(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(command=WAIT_FOR_GO, gpu_count=0)
        eventually(speaking(sdk, job))
        supervisor, process = supervisor_of(sdk, job), job_process_of(sdk, job)
        os.kill(supervisor.pid, signal.SIGSTOP)
        try:
            (Path(job.results_dir) / "go").touch()
            eventually(lambda: not process.alive)
            sdk.store.request_cancel(job.id)
            os.kill(supervisor.pid, signal.SIGTERM)
        finally:
            os.kill(supervisor.pid, signal.SIGCONT)
        assert job.wait(timeout=LONG).status == "Complete"

    def test_a_rank_that_failed_before_the_cancel_is_the_reason(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_GRACE_SECONDS", "1")
        script = (
            '[ $NODE_RANK = 1 ] && exit 7; trap "" TERM; echo deaf; while :; do sleep 0.1; done'
        )
        job = sdk.create_job(command=script, gpu_count=0, num_nodes=2)
        eventually(lambda: "deaf" in sdk.get_job_logs(job.id))
        eventually(lambda: (folder_of(sdk, job).read_state() or {})["ranks"][1]["exit_code"] == 7)
        sdk.store.request_cancel(job.id)
        os.kill(supervisor_of(sdk, job).pid, signal.SIGTERM)
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert (analysis["rank"], analysis["exit_code"]) == (1, 7)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("state.json", b""),
            ("state.json", b"\xff\xfe"),
            ("state.json", b"[]"),
            ("claim.json", b"{"),
        ],
    )
    def test_a_damaged_file_hides_no_other_job(
        self, sdk: LocalSDK, name: str, content: bytes
    ) -> None:
        damaged, healthy = sdk.create_jobs([{"command": "true", "gpu_count": 0}] * 2)
        for job in (damaged, healthy):
            eventually(
                lambda job=job: (folder_of(sdk, job).read_state() or {}).get("phase") == "done"
            )
        (folder_of(sdk, damaged).path / name).write_bytes(content)
        statuses = sdk.get_statuses([damaged.id, healthy.id])
        assert statuses[healthy.id].status == "Complete"
        assert not statuses[damaged.id].terminal
        assert "cannot reach" in statuses[damaged.id].message

    def test_what_a_job_leaves_under_our_names_stops_no_other(self, sdk: LocalSDK) -> None:
        script = (
            'cd "$TAO_RESULTS_ROOT/$TAO_JOB_ID"; '
            "mkfifo tao_result.1.json; mkdir tao_result.2.json; "
            "printf '\\377' > tao_result_x.json; sleep 600"
        )
        job = sdk.create_job(command=script, gpu_count=0)
        eventually(lambda: (Path(job.results_dir) / "tao_result_x.json").exists())
        group = job_process_of(sdk, job).pid
        os.kill(supervisor_of(sdk, job).pid, signal.SIGKILL)
        os.killpg(group, signal.SIGKILL)
        assert job.wait(timeout=LONG).status == "Error"

    def test_a_failing_supervisor_says_why(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_LOCAL_GPUS", "1")
        monkeypatch.setenv("TAO_GPU_LEASE_DIR", "/proc/no/such/folder")
        with pytest.raises(SubmissionRejectedError, match="GPU leases cannot be kept"):
            sdk.create_job(command="true", gpu_count=1)
        [job] = sdk.list_jobs()
        assert job.status == "Error"

    def test_the_number_of_an_ended_rank_stays_its_own(self, sdk: LocalSDK) -> None:
        """Reaped too early it could become a stranger's, whom a signal to the rank would hit."""
        job = sdk.create_job(
            command="[ $NODE_RANK = 0 ] && exit 0; echo up; sleep 600", gpu_count=0, num_nodes=2
        )
        state = folder_of(sdk, job).read_state
        eventually(lambda: ((state() or {}).get("ranks") or [{}])[0].get("exit_code") == 0)
        eventually(speaking(sdk, job))
        first = int((state() or {})["ranks"][0]["process"].split("|")[1])
        assert Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        assert job.cancel()
        eventually(lambda: not Path(f"/proc/{first}").exists())

    def test_a_removed_folder_does_not_keep_supervisor_and_gpus(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_LOCAL_GPUS", "1")
        job = sdk.create_job(command=WAIT_FOR_GO, gpu_count=1)
        eventually(speaking(sdk, job))
        supervisor = supervisor_of(sdk, job)
        shutil.rmtree(folder_of(sdk, job).path)
        (Path(job.results_dir) / "go").touch()
        eventually(lambda: not supervisor.alive)
        again = sdk.create_job(command="true", gpu_count=1, when_busy="refuse")
        assert again.wait(timeout=LONG).status == "Complete"

    def test_a_removed_folder_ends_the_supervisor_of_a_waiting_job(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_LOCAL_GPUS", "1")
        holder = sdk.create_job(command="echo up; sleep 600", gpu_count=1)
        eventually(speaking(sdk, holder))
        waiting = sdk.create_job(command="true", gpu_count=1)
        supervisor = supervisor_of(sdk, waiting)
        shutil.rmtree(folder_of(sdk, waiting).path)
        assert holder.cancel()
        eventually(lambda: not supervisor.alive)

    def test_a_secret_at_the_edge_of_the_evidence_is_not_kept(self, sdk: LocalSDK) -> None:
        secret = "s3cret-" + "x" * 200
        job = sdk.create_job(
            command='echo "$TOKEN"; head -c 65500 /dev/zero | tr "\\0" "."; echo; exit 3',
            gpu_count=0,
            env_vars={"TOKEN": secret},
        )
        assert job.wait(timeout=LONG).status == "Error"
        evidence = folder_of(sdk, job).evidence.read_text()
        assert "xxxxxxxx" not in evidence
        assert len(evidence) <= 64 * 1024

    def test_inherited_credentials_are_left_out_of_the_evidence(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ACCESS_KEY", "canary-outer-key")
        job = sdk.create_job(
            command='echo "key $ACCESS_KEY"; exit 3',
            gpu_count=0,
            env_vars={"AWS_ACCESS_KEY_ID": "canary-inner-key"},
        )
        assert job.wait(timeout=LONG).status == "Error"
        assert "canary" not in str(job.explain())

    def test_unreadable_evidence_hides_no_other_job(self, sdk: LocalSDK) -> None:
        bad, good = sdk.create_jobs([{"command": "exit 3", "gpu_count": 0}] * 2)
        for job in (bad, good):
            eventually(
                lambda job=job: (folder_of(sdk, job).read_state() or {}).get("phase") == "done"
            )
        folder_of(sdk, bad).evidence.unlink()
        folder_of(sdk, bad).evidence.mkdir()
        statuses = sdk.get_statuses([bad.id, good.id])
        assert {status.status for status in statuses.values()} == {"Error"}
        assert good.explain() is not None

    def test_a_damaged_claim_keeps_no_other_submission_from_being_settled(
        self, sdk: LocalSDK, tmp_path: Path
    ) -> None:
        sdk.store.confirm_submission = lambda *a, **k: None  # type: ignore[method-assign]  # played by the test
        bad, good = (sdk.create_job(command="true", gpu_count=0) for _ in range(2))
        for job in (bad, good):
            eventually(
                lambda job=job: (folder_of(sdk, job).read_state() or {}).get("phase") == "done"
            )
            sdk.store.release_submission(job.id)
        folder_of(sdk, bad).claim.write_text("{")
        again = LocalSDK(state_file=tmp_path / "state.json", work_dir=tmp_path / "root")
        assert again.wait(good.id, timeout=LONG).status == "Complete"
        assert again.get_job_status(bad.id).status == "Pending"

    def test_a_claim_that_a_power_cut_emptied(self, sdk: LocalSDK) -> None:
        """Nothing starts before the claim is on the disk, so this job never did."""
        plan = sdk.plan(command="true", gpu_count=0)
        sdk.backend.prepare()
        folder = plan.payload[0].job_folder
        folder.path.mkdir(parents=True)
        folder.claim.touch()
        job = JobRef(plan.identity, plan.intent, plan.results_dir)
        assert sdk.backend.settle([job])[plan.job_id] is not None
        seen = sdk.backend.observe([job])[plan.job_id]
        assert (seen.state, seen.message) == (
            "Error",
            "its supervisor was killed before the job started",
        )
        elsewhere = JobRef(plan.identity, {**plan.intent, "host": "other/boot/pid:[1]"}, "")
        assert "another machine" in sdk.backend.observe([elsewhere])[plan.job_id].unreachable

    def test_a_launch_cut_off_half_way_starts_nothing(self) -> None:
        orders = Orders("j", "t", "/f", "/", ["x"], {}, [], 1, 0, [], [], "/l", "wait", 1.0)
        text = orders.dumps()
        assert Orders.loads(text) == orders
        for cut in range(len(text)):
            with pytest.raises(ValueError):  # noqa: PT011 - whatever JSON makes of it
                Orders.loads(text[:cut])

    def test_files_are_private_whatever_the_umask(self, sdk: LocalSDK) -> None:
        previous = os.umask(0)
        try:
            job = sdk.create_job(command="echo hello", gpu_count=0)
            job.wait(timeout=LONG)
        finally:
            os.umask(previous)
        folder = folder_of(sdk, job).path
        assert folder.stat().st_mode & 0o777 == 0o700
        for path in folder.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path

    def test_umask_and_directory_are_the_callers(
        self, sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        previous = os.umask(0o027)
        try:
            job = sdk.create_job(command="pwd; umask", gpu_count=0)
        finally:
            os.umask(previous)
        job.wait(timeout=LONG)
        assert sdk.get_job_logs(job.id).splitlines() == [str(tmp_path), "0027"]


class TestGpus:
    @pytest.fixture(autouse=True)
    def four_gpus(self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TAO_LOCAL_GPUS", "4")

    def gpus_seen(self, sdk: LocalSDK, job: Job) -> str:
        eventually(lambda: "<" in sdk.get_job_logs(job.id))
        return sdk.get_job_logs(job.id).strip().strip("<>")

    SHOW = 'echo "<$CUDA_VISIBLE_DEVICES>"; '

    @pytest.mark.parametrize(("count", "seen"), [(0, ""), (1, "0"), (3, "0,1,2"), (-1, "0,1,2,3")])
    def test_counts(self, sdk: LocalSDK, count: int, seen: str) -> None:
        """Lesson W5: 0 is none and -1 is all."""
        job = sdk.create_job(command=self.SHOW, gpu_count=count)
        assert self.gpus_seen(sdk, job) == seen

    def test_ids(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(command=self.SHOW, gpu_ids=[3, 1])
        assert self.gpus_seen(sdk, job) == "3,1"

    def test_nodes_share_the_gpus(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(
            command='echo "$NODE_RANK:$CUDA_VISIBLE_DEVICES:$NPROC_PER_NODE"',
            gpu_count=2,
            num_nodes=2,
        )
        job.wait(timeout=LONG)
        lines = sorted(line.split("] ")[1] for line in sdk.get_job_logs(job.id).splitlines())
        assert lines == ["0:0,1:2", "1:2,3:2"]

    def test_two_jobs_never_have_the_same_gpu(self, sdk: LocalSDK) -> None:
        first = sdk.create_job(command=self.SHOW + "sleep 600", gpu_count=2)
        second = sdk.create_job(command=self.SHOW + "sleep 600", gpu_count=2)
        seen = self.gpus_seen(sdk, first), self.gpus_seen(sdk, second)
        assert sorted(",".join(seen).split(",")) == ["0", "1", "2", "3"]

    def test_waiting_says_why_and_where_in_the_queue(self, sdk: LocalSDK) -> None:
        holder = sdk.create_job(command="sleep 600", gpu_count=3)
        eventually(running(sdk, holder))
        second = sdk.create_job(command="true", gpu_count=2)
        third = sdk.create_job(command="true", gpu_count=1)

        def message(job: Job) -> str:
            return sdk.get_job_status(job.id).message

        eventually(lambda: "position 1" in message(second))
        eventually(lambda: "position 2" in message(third))
        assert message(second) == "waiting for 2 of 4 GPUs, 1 free, position 1 in the queue"
        assert sdk.get_job_status(second.id).status == "Pending"
        [replica] = sdk.get_job_replicas(second.id)
        assert replica["status"]["readiness_issue"]["message"] == message(second)
        assert holder.cancel()
        assert sdk.wait_all([second.id, third.id], timeout=LONG)
        assert {sdk.get_job_status(j.id).status for j in (second, third)} == {"Complete"}

    @pytest.mark.parametrize(
        ("options", "shown"),
        [({}, "when_busy=wait"), ({"when_busy": "refuse"}, "when_busy=refuse")],
    )
    def test_the_plan_says_what_happens_when_all_gpus_are_taken(
        self, sdk: LocalSDK, options: dict[str, str], shown: str
    ) -> None:
        assert (
            f"gpus 1 per node, {shown}, leased from" in sdk.plan(command="true", **options).render()
        )
        assert "when_busy" not in sdk.plan(command="true", gpu_count=0).render()

    def test_cancel_of_a_waiting_job(self, sdk: LocalSDK) -> None:
        holder = sdk.create_job(command="sleep 600", gpu_count=4)
        eventually(running(sdk, holder))
        waiting = sdk.create_job(command="touch should-not-be", gpu_count=1)
        eventually(lambda: "position 1" in sdk.get_job_status(waiting.id).message)
        assert waiting.cancel()
        assert waiting.status == "Canceled"
        assert sdk.get_job_status(holder.id).status == "Running"

    def test_a_killed_supervisor_does_not_free_its_gpus(self, sdk: LocalSDK) -> None:
        holder = sdk.create_job(command="echo up; sleep 600", gpu_count=4)
        eventually(speaking(sdk, holder))
        os.kill(supervisor_of(sdk, holder).pid, signal.SIGKILL)
        waiting = sdk.create_job(command="true", gpu_count=1)
        eventually(lambda: "0 free, position 1" in sdk.get_job_status(waiting.id).message)
        assert holder.cancel()
        assert waiting.wait(timeout=LONG).status == "Complete"

    def test_two_jobs_share_a_gpu(self, sdk: LocalSDK) -> None:
        half = {"gpu_ids": [2], "gpu_fraction": 0.5}
        holders = [sdk.create_job(command=self.SHOW + "sleep 600", **half) for _ in range(2)]
        assert [self.gpus_seen(sdk, job) for job in holders] == ["2", "2"]
        third = sdk.create_job(command=self.SHOW, **half)
        whole = sdk.create_job(command=self.SHOW, gpu_ids=[2])
        expected = "waiting for 0.5 of each of 1 of 1 GPUs, 0 free, position 1 in the queue"
        eventually(lambda: sdk.get_job_status(third.id).message == expected)
        eventually(lambda: "position 2" in sdk.get_job_status(whole.id).message)
        assert holders[0].cancel()
        assert third.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_status(whole.id).status == "Pending", "half of its GPU is in use"
        assert holders[1].cancel()
        assert whole.wait(timeout=LONG).status == "Complete"
        assert "(0.5 of each)" in sdk.plan(command="true", **half).render()

    def test_refusal(self, sdk: LocalSDK) -> None:
        holder = sdk.create_job(command="sleep 600", gpu_count=3)
        eventually(running(sdk, holder))
        with pytest.raises(CapacityError, match=r"2 of 4 GPUs wanted, 1 free.*when_busy='wait'"):
            sdk.create_job(command="true", gpu_count=2, when_busy="refuse")
        [refused] = [job for job in sdk.list_jobs() if job.id != holder.id]
        assert refused.status == "Error"
        analysis = refused.explain()
        assert analysis is not None
        assert analysis["err_class"] == "ERR_CAPACITY"
        assert not folder_of(sdk, refused).path.exists()
        job = sdk.create_job(command="true", gpu_count=1, when_busy="refuse")
        assert job.wait(timeout=LONG).status == "Complete"

    @pytest.mark.parametrize(
        ("keywords", "error", "text"),
        [
            ({"gpu_count": 5}, CapacityError, "this machine has 4"),
            ({"gpu_ids": [7]}, CapacityError, "no GPU 7"),
            ({"gpu_ids": [0, 0]}, ValidationError, "twice"),
            ({"gpu_ids": [0, 1], "gpu_count": 3}, ValidationError, "make them agree"),
            ({"gpu_fraction": 0}, ValidationError, "gpu_fraction: expected a number above 0"),
            ({"gpu_fraction": 1.5}, ValidationError, "at most 1, got 1.5"),
            ({"gpu_fraction": float("nan")}, ValidationError, "gpu_fraction"),
            ({"gpu_fraction": "half"}, ValidationError, "gpu_fraction"),
            ({"when_busy": "maybe"}, ValidationError, "wait, refuse"),
            ({"gpu_ids": ["0", "pretended-0"]}, ValidationError, "same GPU twice"),
            ({"gpu_count": -1, "num_nodes": 5}, CapacityError, "all GPUs for each of 5 nodes"),
            ({"gpu_count": 0, "num_nodes": 1025}, CapacityError, "a process .* at most 1024"),
            ({"gpu_count": 0, "num_nodes": 10**9}, ValidationError, "than any platform has"),
            ({"gpu_count": 10**9}, ValidationError, "1000000000 GPUs are more than any"),
            ({"env_vars": {"CUDA_VISIBLE_DEVICES": "3"}}, ValidationError, "gpu_ids="),
        ],
    )
    def test_impossible_wishes_fail_before_anything_exists(
        self, sdk: LocalSDK, keywords: dict[str, object], error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            sdk.create_job(command="true", **keywords)
        assert sdk.list_jobs() == []
        assert not sdk.work_dir.exists()

    def test_many_processes_and_stores_share_the_machine(
        self, sdk: LocalSDK, tmp_path: Path
    ) -> None:
        """Two stores, ten jobs, four GPUs: at no moment do two jobs hold the same one."""
        other = LocalSDK(state_file=tmp_path / "other.json", work_dir=tmp_path / "other")
        taken = tmp_path / "taken"
        taken.mkdir()
        # mkdir fails when another job has the same GPU at this moment.
        script = f"d={taken}/$CUDA_VISIBLE_DEVICES; mkdir $d && sleep 0.1 && rmdir $d"
        jobs = [
            (owner, owner.create_job(command=script, gpu_count=1)) for owner in [sdk, other] * 5
        ]
        assert {owner.wait(job.id, timeout=LONG).status for owner, job in jobs} == {"Complete"}


class TestRequests:
    def test_a_machine_without_gpus_says_what_to_do(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(CapacityError, match="this machine has none; gpu_count=0"):
            sdk.create_job(command="true")

    def test_an_image_is_recorded_not_used(self, sdk: LocalSDK) -> None:
        plan = sdk.plan("nvcr.io/nvidia/tao:1", "true", gpu_count=0)
        assert any("recorded, not used" in note for note in plan.warnings)
        job = sdk.submit(plan)
        row = sdk.store.get_job(job.id)
        assert row is not None
        assert row["image"] == "nvcr.io/nvidia/tao:1"

    def test_a_command_longer_than_the_kernels_limit(self, sdk: LocalSDK) -> None:
        """Lesson B1: one word of a command line may have 128 KiB; ours may be a megabyte."""
        text = "x" * 1_000_000
        job = sdk.create_job(
            command=f": {text}; echo ${{#}}; v='{text}'; echo ${{#v}}", gpu_count=0
        )
        assert job.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job.id).splitlines()[-1] == "1000000"

    def test_words_are_quoted(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(command=["printf", "%s|", "a b", "$HOME", "`id`"], gpu_count=0)
        job.wait(timeout=LONG)
        assert sdk.get_job_logs(job.id) == "a b|$HOME|`id`|\n"

    def test_results_root(self, sdk: LocalSDK, tmp_path: Path) -> None:
        job = sdk.create_job(
            command='echo "$TAO_RESULTS_ROOT"', gpu_count=0, results_root=str(tmp_path / "mine")
        )
        job.wait(timeout=LONG)
        assert sdk.get_job_logs(job.id).strip() == str(tmp_path / "mine")
        assert Path(job.results_dir) == tmp_path / "mine" / job.id
        assert sdk.delete_job_artifacts(job.id)
        assert (tmp_path / "mine").is_dir()
        assert not Path(job.results_dir).exists()

    def test_rank_variables_of_an_outer_job_do_not_reach_an_inner_one(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NODE_RANK", "node-3")
        monkeypatch.setenv("WORLD_SIZE", "8")
        job = sdk.create_job(
            command='echo "<$NODE_RANK><$WORLD_SIZE><$MASTER_ADDR>"',
            gpu_count=0,
            env_vars={"MASTER_ADDR": "mine"},
        )
        assert job.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job.id) == "<><><mine>\n"
        assert (Path(job.results_dir) / "tao_result.json").exists()

    def test_waiting_for_another_platforms_job_does_not_hang(
        self, sdk: LocalSDK, tmp_path: Path
    ) -> None:
        job = sdk.create_job(command="true", gpu_count=0)
        other = VirtualEnvSDK(state_file=tmp_path / "state.json", work_dir=tmp_path / "v")
        with pytest.raises(JobNotFoundError, match="runs on local"):
            other.wait(job.id)

    def test_waiting_for_a_job_that_is_removed_does_not_hang(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = sdk.create_job(command="true", gpu_count=0)
        real = sdk.get_statuses

        def removed_in_between(ids: Sequence[str]) -> dict[str, JobStatus]:
            sdk.store.update_job_status(job.id, "Complete")
            sdk.store.delete_job(job.id)
            return real(ids)

        monkeypatch.setattr(sdk, "get_statuses", removed_in_between)
        with pytest.raises(JobNotFoundError):
            sdk.wait(job.id)

    def test_cancel_of_a_job_that_is_being_submitted(self, sdk: LocalSDK) -> None:
        """The wish is kept until the platform has the job, and then fulfilled."""
        plan = sdk.plan(command="sleep 600", gpu_count=0)
        real = sdk.backend.submit

        def submit_slowly(given: Plan) -> Submission:
            sdk.store.request_cancel(given.job_id)
            return real(given)

        sdk.backend.submit = submit_slowly  # type: ignore[method-assign]  # played by the test
        job = sdk.submit(plan)
        assert job.wait(timeout=LONG).status == "Canceled"

    def test_an_unmounted_disk_is_not_a_job_that_never_was(
        self, sdk: LocalSDK, tmp_path: Path
    ) -> None:
        """The client dies after submitting, and the disk is away when the job is settled."""
        sdk.store.confirm_submission = lambda *a, **k: None  # type: ignore[method-assign]  # played by the test
        job = sdk.create_job(command="true", gpu_count=0)
        eventually(lambda: (folder_of(sdk, job).read_state() or {}).get("phase") == "done")
        sdk.store.release_submission(job.id)
        again = LocalSDK(state_file=tmp_path / "state.json", work_dir=tmp_path / "root")
        (tmp_path / "root").rename(tmp_path / "away")
        assert again.get_job_status(job.id).status == "Pending"
        (tmp_path / "away").rename(tmp_path / "root")
        assert again.wait(job.id, timeout=LONG).status == "Complete"

    def test_a_root_made_in_place_of_an_unmounted_one_denies_no_job(
        self, sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another job is submitted while the disk is away, and so makes the folder anew."""
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        job = sdk.create_job(command="true", gpu_count=0)
        eventually(lambda: (folder_of(sdk, job).read_state() or {}).get("phase") == "done")
        (tmp_path / "root").rename(tmp_path / "away")
        other = sdk.create_job(command="true", gpu_count=0)
        assert other.wait(timeout=LONG).status == "Complete"
        status = sdk.get_job_status(job.id)
        assert status.status == "Pending"
        assert "made since in its place" in status.message
        shutil.rmtree(tmp_path / "root")
        (tmp_path / "away").rename(tmp_path / "root")
        assert job.wait(timeout=LONG).status == "Complete"

    def test_bad_directory(self, sdk: LocalSDK) -> None:
        with pytest.raises(ValidationError, match="cwd: /no/such/place"):
            sdk.create_job(command="true", gpu_count=0, cwd="/no/such/place")

    @pytest.mark.parametrize(
        "place", ["file", "file/below", "shut/below", "x" * 300, "~nosuchuser"]
    )
    def test_results_that_cannot_be_written_are_refused_beforehand(
        self, sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "shut").mkdir(mode=0o555)
        monkeypatch.chdir(tmp_path)
        if os.geteuid() == 0:  # root may write anywhere
            monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "shut")
        with pytest.raises(ValidationError, match=r"^results_root: "):
            sdk.create_job(command="true", gpu_count=0, results_root=place)
        assert sdk.list_jobs() == []
        assert not sdk.work_dir.exists()

    def test_results_that_turn_out_not_to_be_writable(self, sdk: LocalSDK) -> None:
        with pytest.raises(SubmissionRejectedError, match=r"cannot make /proc/nope.*results_root="):
            sdk.create_job(command="true", gpu_count=0, results_root="/proc/nope")
        [job] = sdk.list_jobs()
        assert job.status == "Error"
        assert not folder_of(sdk, job).path.exists()

    def test_a_current_folder_that_was_removed(
        self, sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        with pytest.raises(ValidationError, match="current folder was removed"):
            sdk.create_job(command="true", gpu_count=0)
        job = sdk.create_job(command="pwd", gpu_count=0, cwd=str(tmp_path))
        assert job.wait(timeout=LONG).status == "Complete"

    def test_a_directory_that_cannot_be_inspected(self, sdk: LocalSDK) -> None:
        with pytest.raises(ValidationError, match=r"cwd: cannot inspect .*too long"):
            sdk.create_job(command="true", gpu_count=0, cwd="/" + "x" * 300)

    @pytest.mark.parametrize("root", ["/proc/nope", "/dev/null/jobs"])
    def test_a_work_folder_that_cannot_be_made(
        self, sdk: LocalSDK, tmp_path: Path, root: str
    ) -> None:
        other = LocalSDK(state_file=tmp_path / "state.json", work_dir=root)
        with pytest.raises(BackendUnreachableError, match=root):
            other.create_job(command="true", gpu_count=0)
        assert sdk.list_jobs() == []

    def test_constructing_opens_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_STATE_DIR", "not-absolute")
        LocalSDK(state_file=tmp_path / "x" / "s.json", work_dir=tmp_path / "y")
        assert list(tmp_path.iterdir()) == []

    def test_checkpoints(self, sdk: LocalSDK) -> None:
        script = (
            'd="$TAO_RESULTS_ROOT/$TAO_JOB_ID/train"; mkdir -p $d; '
            "for e in 1 2; do echo x > $d/model_epoch_00$e.safetensors; done; echo x > $d/notes.txt"
        )
        job = sdk.create_job(command=script, gpu_count=0)
        job.wait(timeout=LONG)
        names = [Path(path).name for path in sdk.get_checkpoints(job.id)]
        assert names == ["model_epoch_001.safetensors", "model_epoch_002.safetensors"]


class TestPaths:
    def test_results_that_became_a_link_are_not_followed(
        self, sdk: LocalSDK, tmp_path: Path
    ) -> None:
        job = sdk.create_job(command="true", gpu_count=0)
        assert job.wait(timeout=LONG).status == "Complete"
        kept = Path(job.results_dir).rename(tmp_path / "elsewhere")
        Path(job.results_dir).symlink_to(kept)
        assert not sdk.delete_job_artifacts(job.id)
        assert (kept / "tao_result.json").exists()

    @pytest.mark.seed("000.22")
    def test_files_of_this_machine(self, sdk: LocalSDK, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "b").touch()
        (tmp_path / "data" / "a").touch()
        for path in (f"{tmp_path}/data", f"file://{tmp_path}//data/", f"{tmp_path}//data/"):
            assert sdk.check_path(path)
            assert sdk.list_path(path) == ["a", "b"]
        assert not sdk.check_path(f"{tmp_path}/nothing")
        assert sdk.list_path(f"{tmp_path}/data/a") == ["a"]
        with pytest.raises(ValidationError, match="no such path"):
            sdk.list_path(f"{tmp_path}/nothing")

    @pytest.mark.seed("000.3")
    def test_credentials_are_asked_for_on_first_use_only(self, sdk: LocalSDK) -> None:
        with pytest.raises(CredentialError, match="ACCESS_KEY and SECRET_KEY"):
            sdk.check_path("s3://bucket/data")

    def test_what_is_no_place(self, sdk: LocalSDK) -> None:
        with pytest.raises(UnsupportedError, match="nosuch://a/b: neither a path"):
            sdk.check_path("nosuch://a/b")


def test_the_longest_variable_arrives_and_too_many_are_named(sdk: LocalSDK) -> None:
    longest = {"A": "x" * (MAX_VARIABLE_BYTES - 3)}
    job = sdk.create_job(command="echo ${#A}", gpu_count=0, env_vars=longest)
    assert job.wait(timeout=LONG).status == "Complete"
    assert list(job.logs()) == [str(MAX_VARIABLE_BYTES - 3)]
    many = {f"A{number}": "x" * 100_000 for number in range(100)}
    job = sdk.create_job(command="true", gpu_count=0, env_vars=many)
    assert job.wait(timeout=LONG).status == "Error"
    explained = job.explain()
    assert "too large to start a program" in explained["cause"]
    assert "chmod" not in explained["suggestion"]
