"""Jobs on a real cluster: what the conformance suite does not ask of every platform."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from common_lab import isolate
from slurm_lab import SlurmPlatformLab

from lab.slurm import SlurmVariant, private_cluster, shared_cluster, slurm_lab
from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError, ValidationError
from tao_sdk.platforms.conformance.lab import eventually, reference


class TestFiles:
    @pytest.mark.seed("002.4", "002.6", "002.8", "002.14")
    def test_where_everything_lies(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job('echo out; echo err >&2; echo "$TAO_RESULTS_ROOT $TAO_API_RESULTS_DIR"'),
            specs={"train": {"epochs": 2}},
        )
        job.wait(timeout=60)
        shared = lab.slurm.shared
        assert job.results_dir == f"lustre://{shared}/results/{job.id}"
        details = sdk.get_backend_details(job.id)
        slurm_id = details["slurm_metadata"]["slurm_job_id"]
        job_dir = Path(details["slurm_metadata"]["job_dir"])
        assert details["backend_type"] == "slurm"
        assert job_dir == shared / "jobs" / job.id
        logs = job_dir / "slurm-logs" / f"tao-job-{job.id}-{slurm_id}"
        assert (logs / "main.out").read_text() == f"out\n{shared}/results {shared}/results\n"
        assert (logs / "main.err").read_text() == "err\n"
        assert json.loads((job_dir / "specs" / f"{job.id}.json").read_text())["train"]
        assert (job_dir / "sbatch" / f"job_{job.id}.sbatch").exists()
        assert (job_dir / "meta" / f"{job.id}.json").exists()
        assert not (job_dir / "env" / f"{job.id}.sh").exists()
        assert job_dir.stat().st_mode & 0o777 == 0o700

    @pytest.mark.seed("002.4")
    def test_no_metadata_before_slurm_answered(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        with pytest.raises(SubmissionRejectedError):
            sdk.create_job(**lab.job("true"), reservation="no-such-thing")
        [row] = sdk.store.list_jobs()
        assert "slurm_metadata" not in sdk.get_backend_details(row["job_id"])

    def test_the_jobs_own_files_have_the_users_own_mask(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job('touch "$TAO_RESULTS_ROOT/$TAO_JOB_ID/made"'))
        job.wait(timeout=60)
        made = lab.slurm.shared / "results" / job.id / "made"
        assert made.stat().st_mode & 0o777 == 0o644


class TestPaths:
    @pytest.mark.seed("002.5")
    def test_checked_and_listed_on_the_login_host(self, lab: SlurmPlatformLab) -> None:
        """Lessons W2, W3, F13: addresses of the cluster are asked about there."""
        sdk = lab.sdk()
        folder = lab.slurm.shared / "a folder"
        folder.mkdir()
        (folder / "one").touch()
        (folder / "two").mkdir()
        for form in ("lustre://", "slurm://", ""):
            assert sdk.check_path(f"{form}{folder}/one")
            assert not sdk.check_path(f"{form}{folder}/three")
            assert sdk.list_path(f"{form}{folder}") == ["one", "two"]
            assert sdk.list_path(f"{form}{folder}/one") == ["one"]
            assert sdk.list_path(f"{form}{folder}/three") == []
        with pytest.raises(ValidationError, match="a file of this machine"):
            sdk.check_path("file:///etc/passwd")

    def test_checkpoints_are_found_there(self, lab: SlurmPlatformLab) -> None:
        """Lessons W3, F13."""
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job(
                'cd "$TAO_RESULTS_ROOT/$TAO_JOB_ID"; mkdir -p train/deep; '
                "echo x > train/deep/model_epoch_002.pth; echo x > train/model_epoch_010.pth"
            )
        )
        job.wait(timeout=60)
        assert sdk.get_checkpoints(job.id) == [
            f"{job.results_dir}/train/deep/model_epoch_002.pth",
            f"{job.results_dir}/train/model_epoch_010.pth",
        ]

    @pytest.mark.seed("002.5")
    def test_missing_data_is_refused_before_anything_exists(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        missing = f"lustre://{lab.slurm.shared}/no/such/data"
        with pytest.raises(ValidationError, match="no/such/data is not there"):
            sdk.create_job(**lab.job("true"), inputs={"/in": missing})
        with pytest.raises(ValidationError, match="image: /no/such"):
            sdk.create_job(image="/no/such.sqsh", command="true", gpu_count=0)
        assert sdk.list_jobs() == []
        assert not (lab.slurm.shared / "jobs").exists()


class TestArrays:
    def test_a_sweep_is_one_submission(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        sdk.check_path("/")
        requests = [lab.counted_job(f"echo number {n}; exit {n % 2}") for n in range(12)]
        jobs = sdk.create_jobs(requests)
        assert list(sdk.backend.transport.calls).count("submit_array") == 1
        assert "submit" not in list(sdk.backend.transport.calls)
        ids = [sdk.get_backend_details(job.id)["slurm_metadata"]["slurm_job_id"] for job in jobs]
        assert [one.split("_")[1] for one in ids] == [str(n) for n in range(12)]
        statuses = sdk.wait_all([job.id for job in jobs], timeout=90)
        for n, job in enumerate(jobs):
            assert statuses[job.id].status == ("Error" if n % 2 else "Complete")
            assert sdk.get_job_logs(job.id) == f"number {n}\n"
            assert lab.starts_of(job.id) == 1

    def test_jobs_that_differ_are_not_forced_together(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        two, other = lab.job("true"), {**lab.job("true"), "time_hours": 0.5}
        jobs = sdk.create_jobs([two, other, two])
        calls = list(sdk.backend.transport.calls)
        assert (calls.count("submit_array"), calls.count("submit")) == (1, 1)
        statuses = sdk.wait_all([job.id for job in jobs], timeout=90)
        assert {status.status for status in statuses.values()} == {"Complete"}

    def test_one_of_them_is_cancelled(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        first, second = sdk.create_jobs([lab.job("sleep 600"), lab.job("echo fine")])
        assert first.cancel(), sdk.get_job_status(first.id)
        assert first.status == "Canceled"
        assert second.wait(timeout=60).status == "Complete"

    def test_a_refused_sweep_is_refused_for_each(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        jobs = sdk.create_jobs([{**lab.job("true"), "reservation": "no-such-thing"}] * 2)
        for job in jobs:
            assert job.status == "Error"
            analysis = job.explain()
            assert analysis is not None
            assert "reservation" in analysis["cause"].lower()


class TestMultiNode:
    @pytest.mark.seed("002.12")
    def test_roles_of_cosmos(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job('echo "$NODE_RANK $COSMOS_ROLE $COSMOS_CONTROLLER_HOST $TAO_NODE_ROLE"'),
            num_nodes=3,
            network_arch="cosmos-rl",
            roles={"policy": 2, "rollout": 1},
        )
        assert job.wait(timeout=60).status == "Complete", sdk.get_job_logs(job.id)
        lines = sorted(line.split("] ")[1] for line in sdk.get_job_logs(job.id).splitlines())
        controller = f"{lab.slurm.nodes[0]}:8082"
        assert lines == [
            f"0 Policy {controller} policy",
            f"1 Policy {controller} policy",
            f"2 Rollout {controller} rollout",
        ]


class TestController:
    def test_restarted_while_jobs_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing wrong is reported while it is away, and everything right afterwards."""
        with private_cluster() as cluster, slurm_lab(cluster) as slurm:
            lab = SlurmPlatformLab(tmp_path, slurm)
            isolate(monkeypatch, lab)
            sdk = lab.sdk()
            wait = 'echo up; until [ -e "$TAO_RESULTS_ROOT/$TAO_JOB_ID/go" ]; do sleep 0.1; done; '
            good, bad = sdk.create_job(**lab.job(wait)), sdk.create_job(**lab.job(f"{wait}exit 3"))
            for job in (good, bad):
                eventually(lambda job=job: "up" in sdk.get_job_logs(job.id))  # type: ignore[misc]  # bound now: the loop goes on
                assert job.refresh().status == "Running"
            slurm.stop_controller()
            status = sdk.get_job_status(good.id)
            assert status.status == "Running"
            assert "cannot reach" in status.message
            for job in (good, bad):
                lab.touch_result(job, "go")
            slurm.start_controller()
            ended = good.wait(timeout=90)
            assert ended.status == "Complete", (ended.message, good.explain())
            assert bad.wait(timeout=90).status == "Error"
            analysis = bad.explain()
            assert analysis is not None
            assert analysis["exit_code"] == 3

    def test_a_limit_that_is_not_enforced_at_submission(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Refused by us before it can wait for ever."""
        variant = SlurmVariant(accounting=False, enforce_part_limits=False)
        with shared_cluster(variant) as cluster, slurm_lab(cluster) as slurm:
            lab = SlurmPlatformLab(tmp_path, slurm)
            isolate(monkeypatch, lab)
            with pytest.raises(ValidationError, match="time_hours"):
                lab.sdk().create_job(**lab.job("true"), partition="polar", time_hours=5)


class TestAnotherCluster:
    def test_its_jobs_are_not_judged_from_here(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 600"))
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
        mine = reference(sdk, job.id)
        other = mine._replace(native={**mine.native, "cluster": "elsewhere"})
        assert sdk.backend.settle([other]) == {}
        with pytest.raises(BackendUnreachableError, match="elsewhere"):
            sdk.backend.cancel(other)
        assert sdk.get_job_status(job.id).status == "Running"
        job.cancel()
        seen = sdk.backend.observe([other])[job.id]
        assert "elsewhere" in seen.unreachable

    def test_a_folder_of_that_name_is_not_deleted(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"))
        assert job.wait(timeout=60).status == "Complete"
        mine = reference(sdk, job.id)
        other = mine._replace(native={**mine.native, "cluster": "elsewhere"})
        with pytest.raises(BackendUnreachableError, match="elsewhere"):
            sdk.backend.delete_artifacts(other)
        assert job.id in lab.jobs_in_reality()
        assert sdk.delete_job_artifacts(job.id)
        assert job.id not in lab.jobs_in_reality()

    def test_a_shared_folder_that_is_not_mounted(
        self, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"))
        eventually(lambda: sdk.backend.result_records(reference(sdk, job.id)))
        jobs, away = lab.slurm.shared / "jobs", lab.slurm.shared / "unmounted"
        jobs.rename(away)
        status = sdk.get_job_status(job.id)
        assert not status.terminal
        assert "is not there" in status.message
        away.rename(jobs)
        assert job.wait(timeout=60).status == "Complete"
