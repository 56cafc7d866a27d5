"""What only the local platform does: supervisors, GPU queues, process groups."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tao_sdk import Job, LocalSDK
from tao_sdk.errors import CapacityError, CredentialError, UnsupportedError, ValidationError
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.local.launch import JobFolder, Launch
from tao_sdk.process_identity import ProcessIdentity

LONG = 60


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


def running(sdk: LocalSDK, job: Job) -> Callable[[], bool]:
    return lambda: sdk.get_job_status(job.id).status == "Running"


class TestSupervisor:
    def test_killed_supervisor_does_not_kill_the_job(self, sdk: LocalSDK) -> None:
        """Lesson W19: the job goes on, and its own record tells how it ends."""
        script = (
            'd="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; while [ ! -e "$d/go" ]; do sleep 0.05; done; exit 3'
        )
        job = sdk.create_job(command=script, gpu_count=0)
        eventually(running(sdk, job))
        os.kill(supervisor_of(sdk, job).pid, signal.SIGKILL)
        eventually(lambda: "supervisor was killed" in sdk.get_job_status(job.id).message)
        assert sdk.get_job_status(job.id).status == "Running"
        (Path(job.results_dir) / "go").touch()
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["exit_code"] == 3

    def test_killed_supervisor_and_successful_job(self, sdk: LocalSDK) -> None:
        script = 'd="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; while [ ! -e "$d/go" ]; do sleep 0.05; done'
        job = sdk.create_job(command=script, gpu_count=0)
        eventually(running(sdk, job))
        os.kill(supervisor_of(sdk, job).pid, signal.SIGKILL)
        (Path(job.results_dir) / "go").touch()
        assert job.wait(timeout=LONG).status == "Complete"

    def test_everything_killed_is_noticed_and_said(self, sdk: LocalSDK) -> None:
        job = sdk.create_job(command="sleep 600", gpu_count=0)
        eventually(running(sdk, job))
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
        job = sdk.create_job(command="sleep 600", gpu_count=0)
        eventually(running(sdk, job))
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
        background = int(pid_file.read_text())
        assert (
            not Path(f"/proc/{background}").exists()
            or not ProcessIdentity(ProcessIdentity.current().host, background, "?").alive
        )

    def test_a_launch_cut_off_half_way_starts_nothing(self) -> None:
        launch = Launch("j", "t", "/f", "/", ["x"], {}, 1, 0, [], [], "/l", "wait", 1.0)
        assert Launch.loads(launch.dumps()) == launch
        with pytest.raises(ValueError, match="cut off"):
            Launch.loads(launch.dumps()[:-5])

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

    def test_cancel_of_a_waiting_job(self, sdk: LocalSDK) -> None:
        holder = sdk.create_job(command="sleep 600", gpu_count=4)
        eventually(running(sdk, holder))
        waiting = sdk.create_job(command="touch should-not-be", gpu_count=1)
        eventually(lambda: "position 1" in sdk.get_job_status(waiting.id).message)
        assert waiting.cancel()
        assert waiting.status == "Canceled"
        assert sdk.get_job_status(holder.id).status == "Running"

    def test_a_killed_supervisor_does_not_free_its_gpus(self, sdk: LocalSDK) -> None:
        holder = sdk.create_job(command="sleep 600", gpu_count=4)
        eventually(running(sdk, holder))
        os.kill(supervisor_of(sdk, holder).pid, signal.SIGKILL)
        waiting = sdk.create_job(command="true", gpu_count=1)
        eventually(lambda: "0 free, position 1" in sdk.get_job_status(waiting.id).message)
        assert holder.cancel()
        assert waiting.wait(timeout=LONG).status == "Complete"

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
            ({"when_busy": "maybe"}, ValidationError, "wait, refuse"),
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

    def test_bad_directory(self, sdk: LocalSDK) -> None:
        with pytest.raises(ValidationError, match="cwd: /no/such/place"):
            sdk.create_job(command="true", gpu_count=0, cwd="/no/such/place")

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
    def test_credentials_are_asked_for_on_first_use_only(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(CredentialError, match="ACCESS_KEY and SECRET_KEY"):
            sdk.check_path("s3://bucket/data")
        monkeypatch.setenv("ACCESS_KEY", "canary-access")
        monkeypatch.setenv("SECRET_KEY", "canary-secret")
        with pytest.raises(UnsupportedError, match="this machine only") as caught:
            sdk.check_path("s3://bucket/data")
        assert "canary" not in str(caught.value)
