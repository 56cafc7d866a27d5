"""Jobs of a played workspace: what is asked for, how it is watched, explained and stopped."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from lepton_lab import LeptonLab

from lab.lepton import FORBIDDEN, TOKEN, LeptonServer
from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    CredentialError,
    SubmissionRejectedError,
    ValidationError,
)
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import reference
from tao_sdk.platforms.lepton import LeptonSDK
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.rest import Timeouts
from tao_sdk.preflight import Check, PreflightRequest, run_preflight
from tao_sdk.skills import SkillBank

LONG = 60.0


def body_of(server: LeptonServer, path: str) -> Any:
    """What was sent there last."""
    sent = [one for one in server.requests if (one["method"], one["path"]) == ("POST", path)]
    return json.loads(sent[-1]["body"])


class TestWhatIsSent:
    def test_the_plan_is_the_payload(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        plan = sdk.plan(
            **lab.job("train"),
            num_nodes=2,
            shm_size="16Gi",
            queue_priority="high",
            can_be_preempted=False,
            env_vars={"WANDB_API_KEY": "canary-of-the-plan", "EMPTY": ""},
        )
        calls = len(played.requests)
        shown = {one.name: one.text for one in plan.artefacts}
        job = sdk.submit(plan)
        sent = body_of(played, "/jobs")
        assert json.loads(shown["job"]) == sent
        assert played.calls(calls) == ["POST /usersecrets", "POST /jobs"]
        spec = sent["spec"]
        assert spec["queue_config"] == {"priority_class": "high-7000", "can_be_preempted": False}
        assert (spec["completions"], spec["parallelism"]) == (2, 2)
        assert spec["intra_job_communication"] is True
        assert spec["shared_memory_size"] == 16384
        assert spec["ttl_seconds_after_finished"] == 259_200
        assert spec["affinity"] == {"allowed_dedicated_node_groups": ["ng-main"]}
        assert spec["log"] == {"enable_collection": True, "save_termination_logs": True}
        assert sent["metadata"]["visibility"] == "private"
        [name] = shown["secrets of the workspace"].splitlines()
        assert {"name": "WANDB_API_KEY", "value_from": {"secret_name_ref": name}} in spec["envs"]
        assert {"name": "EMPTY", "value": ""} in spec["envs"]
        assert "canary-of-the-plan" not in plan.render() + json.dumps(sent)
        assert job.workspace_id == "played-ws"
        assert job.backend_job_id == played.job_of(job.id).id, "the server's own id"

    @pytest.mark.seed("000.13")
    def test_shared_storage_is_found_and_results_go_there(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        job = sdk.create_job(**lab.job("true"))
        spec = body_of(played, "/jobs")["spec"]
        assert spec["mounts"] == [
            {"path": "/team", "from": "node-nfs:lustre", "mount_path": "/mnt/lustre"}
        ]
        env = {one["name"]: one.get("value") for one in spec["envs"]}
        assert env["TAO_RESULTS_ROOT"] == "/mnt/lustre/results"
        assert job.results_dir == f"lepton-volume://lustre/team/results/{job.id}"

    @pytest.mark.seed("000.13")
    def test_without_shared_storage_there_is_no_results_root(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        plan = sdk.plan(**lab.job("true"), mounts=[])
        assert plan.results_dir == ""
        assert any("no shared storage" in note for note in plan.warnings)
        sdk.submit(plan)
        names = [one["name"] for one in body_of(played, "/jobs")["spec"]["envs"]]
        assert "TAO_RESULTS_ROOT" not in names

    def test_mounts_that_are_given(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        mounts = ["filestore-a/me:/results", "lustre/data:/data:ro"]
        job = sdk.create_job(**lab.job("true"), mounts=mounts)
        assert body_of(played, "/jobs")["spec"]["mounts"] == [
            {"path": "/me", "from": "node-nfs:filestore-a", "mount_path": "/results"},
            {
                "path": "/data",
                "from": "node-nfs:lustre",
                "mount_path": "/data",
                "mount_options": {"read_only": True},
            },
        ]
        assert job.results_dir == f"lepton-volume://filestore-a/me/{job.id}"

    def test_a_folder_that_may_not_be_mounted_is_said(self, sdk: LeptonSDK, lab: LeptonLab) -> None:
        def notes(*mounts: str) -> str:
            return "\n".join(sdk.plan(**lab.job("true"), mounts=mounts).warnings)

        assert "you may mount /team; Lepton may refuse /teams" in notes("lustre/teams:/data")
        assert "may mount" not in notes("lustre/team:/a", "lustre/team/me:/b", "filestore-a/x:/c")

    def test_the_pull_secret_is_made_once(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("NGC_KEY", "nvapi-canary-of-ngc")
        asked = {**lab.job("true"), "image": "nvcr.io/nvidia/tao/tao-toolkit:7.0.1-pyt"}
        for _ in range(2):
            sdk.create_job(**asked)
        assert body_of(played, "/jobs")["spec"]["image_pull_secrets"] == ["tao-image-pull-secret"]
        assert played.calls().count("POST /imagepullsecrets") == 1
        assert played.state.pull_secrets["tao-image-pull-secret"] == {
            "registry_server": "https://nvcr.io",
            "username": "$oauthtoken",
            "password": "nvapi-canary-of-ngc",
        }
        sdk.create_job(**asked, image_pull_secret=[])
        assert "image_pull_secrets" not in body_of(played, "/jobs")["spec"]

    def test_what_cannot_be_is_refused_before_anything_exists(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        job = lab.job("true")
        for keywords, error in (
            ({"image": ""}, "image"),
            ({"dedicated_node_group": "none-such"}, "there is: main, full"),
            ({"env_vars": {"LEPTON_JOB_NAME": "x"}}, "LEPTON_JOB_NAME"),
            ({"mounts": ["nowhere:/data"]}, "no volume 'nowhere'"),
            ({"resource_shape": "gpu.none"}, "no 'gpu.none' here"),
            ({"dedicated_node_group": None, "queue_priority": 1, "mounts": []}, "queue_priority"),
            ({"dedicated_node_group": None, "mounts": ["lustre/x:/d"]}, "dedicated_node_group="),
            ({"image_pull_secret": "none-such"}, "image_pull_secret: .* no 'none-such'; .*: none"),
            ({"mounts": [{"from": "x", "mount_path": "/d", "mount_options": "ro"}]}, "mounts"),
        ):
            with pytest.raises(ValidationError, match=error):
                sdk.create_job(**{**job, **keywords})
        with pytest.raises(CapacityError, match="no shape of node group main has 8 GPUs"):
            sdk.create_job(**{**job, "gpu_count": 8})
        assert sdk.list_jobs() == []
        assert not played.state.jobs
        assert not played.state.secrets

    def test_a_refused_job_leaves_no_secrets(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        played.faults.refuse_next = [("POST /jobs", 422)]
        with pytest.raises(SubmissionRejectedError, match="refuses the job"):
            sdk.create_job(**lab.job("true"), env_vars={"TOKEN": "of-no-use-any-more"})
        assert not played.state.secrets

    def test_a_refused_job_is_asked_about_nowhere(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        played.faults.refuse_next = [("POST /jobs", 422)]
        [job] = sdk.create_jobs([lab.job("true")])
        calls = len(played.requests)
        assert job.status == "Error"
        assert sdk.get_job_logs(job.id) == ""
        assert sdk.get_job_replicas(job.id) == []
        assert played.calls(calls) == []


class TestAccess:
    @pytest.mark.seed("001.11")
    def test_tokens_and_workspaces_that_are_refused(
        self, lab: LeptonLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value, told in (
            ("LEPTON_AUTH_TOKEN", "expired-token", "does not accept the token"),
            ("LEPTON_AUTH_TOKEN", FORBIDDEN, "LEPTON_AUTH_TOKEN is not for workspace"),
            ("LEPTON_WORKSPACE_ID", "none-such", "no workspace none-such"),
        ):
            with monkeypatch.context() as patch:
                patch.setenv(name, value)
                with pytest.raises((CredentialError, BackendUnreachableError), match=told) as error:
                    lab.sdk().create_job(**lab.job("true"))
                assert value not in str(error.value) or name == "LEPTON_WORKSPACE_ID"
                report = run_preflight(PreflightRequest(platform="lepton"), SkillBank())
                assert "lepton.access" in [check.name for check in report.failures]

    @pytest.mark.seed("001.11")
    def test_preflight(self, lab: LeptonLab, server: LeptonServer) -> None:
        report = run_preflight(PreflightRequest(platform="lepton"), SkillBank())
        found = {check.name: check.status for check in report.checks}
        assert found["lepton.access"] == "passed"
        assert set(server.calls()) == {"GET /imagepullsecrets"}, "it looks, and makes nothing"

    @pytest.mark.seed("001.11")
    def test_preflight_looks_for_what_the_job_would_get(
        self, lab: LeptonLab, server: LeptonServer
    ) -> None:
        def look(gpus: int | None, **options: Any) -> dict[str, Check]:
            request = PreflightRequest(platform="lepton", gpu_count=gpus, options=options)
            return {check.name: check for check in run_preflight(request, SkillBank()).checks}

        found = look(3)
        assert found["lepton.place"].status == "passed"
        assert "gpu.4xh100-sxm of node group main" in found["lepton.place"].message
        assert "no shape has exactly 3" in found["lepton.place"].message
        assert found["gpu.count"].message == "3 x NVIDIA-H100-80GB-HBM3"
        for gpus, options, told in (
            (1, {"dedicated_node_group": "none-such"}, "there is: main, full"),
            (9, {}, "no shape of this workspace has 9 GPUs"),
            (None, {"resource_shape": "gpu.none"}, "no 'gpu.none' here"),
            (1, {"mounts": ["nowhere:/data"]}, "no volume 'nowhere'"),
            (1, {"image_pull_secret": "none-such"}, "no 'none-such'"),
            (1, {"queue_priority": "often"}, "queue_priority"),
        ):
            found = look(gpus, **options)
            assert found["lepton.place"].status == "failed"
            assert told in found["lepton.place"].message
        assert not [call for call in server.calls() if not call.startswith("GET ")]

    def test_a_token_that_expires_changes_no_state(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        job = sdk.create_job(**lab.job("true"))
        played.job_of(job.id).turn("Running")
        assert job.refresh().status == "Running"
        monkeypatch.setenv("LEPTON_AUTH_TOKEN", "expired-since")
        status = lab.sdk().get_job_status(job.id)
        assert status.status == "Running"
        assert "LEPTON_AUTH_TOKEN" in status.message

    def test_a_gateway_that_denies_everything_denies_no_job(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        """Whatever the workspace answered a moment ago."""
        job = sdk.create_job(**lab.job("true"))
        played.faults.refuse_next = [(f"GET /jobs/{job.backend_job_id}", 404), ("GET ", 404)]
        status = sdk.get_job_status(job.id)
        assert "there is no workspace" in status.message
        row = sdk.store.get_job(job.id)
        assert row is not None
        assert not row["missing_since"]

    def test_another_workspace_is_not_asked(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        job = sdk.create_job(**lab.job("true"))
        monkeypatch.setenv("LEPTON_WORKSPACE_ID", "another")
        status = lab.sdk().get_job_status(job.id)
        assert not status.terminal
        assert "was given to workspace played-ws" in status.message


class TestLimits:
    def test_retry_after_is_honoured(self, lab: LeptonLab, server: LeptonServer) -> None:
        api = LeptonClient(WorkspaceAccess.find())
        server.faults.refuse_next = [("GET /shapes", 429)] * 2
        server.faults.retry_after = "1"
        assert api.get_list("/shapes")
        times = [one["time"] for one in server.requests if one["path"] == "/shapes"]
        assert len(times) == 3
        assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 1

    @pytest.mark.parametrize("told", ["", "Wed, 21 Oct 2026 07:28:00 GMT", "soon"])
    def test_without_a_number_of_seconds(
        self, lab: LeptonLab, server: LeptonServer, told: str
    ) -> None:
        server.faults.refuse_next = [("GET /shapes", 429)] * 2
        server.faults.retry_after = told
        assert LeptonClient(WorkspaceAccess.find()).get_list("/shapes")
        assert server.calls() == ["GET /shapes"] * 3

    def test_and_bounded(self, lab: LeptonLab, server: LeptonServer) -> None:
        api = LeptonClient(WorkspaceAccess.find(), Timeouts(busy=2.0))
        server.faults.busy, server.faults.retry_after = 1.0, "3600"
        with pytest.raises(BackendUnreachableError, match="too many requests"):
            api.get("/shapes")
        assert len(server.requests) == 1, "no process waits for an hour"
        with pytest.raises(BackendUnreachableError, match="allows the next request in"):
            api.get("/shapes")
        assert len(server.requests) == 1, "nor asks again before it is over"
        server.faults.busy = 0.0
        assert api.get("/dedicated-node-groups"), "limits are of one kind of request"

    def test_a_pause_that_is_longer_than_we_wait_ends(
        self, lab: LeptonLab, server: LeptonServer
    ) -> None:
        api = LeptonClient(WorkspaceAccess.find(), Timeouts(busy=0.5))
        server.faults.refuse_next, server.faults.retry_after = [("GET /shapes", 429)], "1"
        with pytest.raises(BackendUnreachableError, match="refused by the test"):
            api.get("/shapes")

        def is_answered() -> bool:
            with contextlib.suppress(BackendUnreachableError):
                return bool(api.get("/shapes"))
            return False

        eventually(is_answered)
        first, second = (one["time"] for one in server.requests)
        assert second - first >= 1

    def test_a_storm_ends_a_submission_for_certain(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        plan = sdk.plan(**lab.job("true"))
        played.faults.busy, played.faults.retry_after = 1.0, "3600"
        with pytest.raises(SubmissionRejectedError, match="too many requests"):
            sdk.submit(plan)
        assert not played.state.jobs

    def test_what_makes_something_is_not_repeated(
        self, lab: LeptonLab, server: LeptonServer
    ) -> None:
        api = LeptonClient(WorkspaceAccess.find())
        api.get("/shapes")  # a connection that is kept
        server.faults.lose_next = ["POST /usersecrets", "GET /shapes"]
        with pytest.raises(BackendUnreachableError, match="may or may not"):
            api.create("/usersecrets", [{"name": "A", "value": "b"}])
        assert server.calls().count("POST /usersecrets") == 1
        assert api.get("/shapes")
        assert TOKEN not in str(list(api.calls))


class TestMany:
    @pytest.mark.parametrize("page_limit", [1000, 100])
    def test_a_thousand_jobs_are_one_list(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer, page_limit: int
    ) -> None:
        jobs = sdk.create_jobs([lab.job("true")] * 1000)
        for job in played.state.jobs.values():
            job.turn("Running")
        sdk.get_statuses([jobs[0].id])
        played.faults.page_limit = page_limit
        calls = len(played.requests)
        statuses = sdk.get_statuses([job.id for job in jobs])
        assert {status.status for status in statuses.values()} == {"Running"}
        size = min(page_limit, 500)
        assert played.calls(calls) == ["GET /jobs"] * (1000 // size)

    def test_jobs_of_others_and_archived_ones(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        jobs = sdk.create_jobs([lab.job("true")] * 30)
        for number, job in enumerate(jobs):
            one = played.job_of(job.id)
            one.succeeded, one.failed = int(number % 2 == 0), int(number % 2)
            played.state.archive(one, "Archived")
        statuses = list(sdk.get_statuses([job.id for job in jobs]).values())
        assert [one.status for one in statuses] == ["Complete", "Error"] * 15


class TestReasons:
    def test_every_one_of_many_failures_has_its_exit_code(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        jobs = sdk.create_jobs([lab.job("exit 7")] * 25)
        eventually(lambda: all(job.completed for job in server.state.jobs.values()), LONG)
        sdk.get_statuses([job.id for job in jobs])
        assert {row["exit_code"] for row in sdk.store.list_jobs()} == {7}

    def test_the_servers_analysis_is_merged(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        job = sdk.create_job(**lab.job("kill -9 $PPID; sleep 60"))
        one = server.job_of(job.id)
        one.analysis = {
            "err_class": "ERR_OOM",
            "suggestion": "Use a larger shape.",
            "job_failure_by_node_event": [
                {"node_event_name": "OOMKilled", "message": "OOMKilled: container used too much"}
            ],
            "log_streams": [],
        }
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["err_class"] == "ERR_OOM"
        assert analysis["job_failure_by_node_event"][0]["node_event_name"] == "OOMKilled"
        assert any("Use a larger shape" in line for line in analysis["evidence"])

    @pytest.mark.seed("000.23")
    @pytest.mark.parametrize(
        ("reason", "message", "err_class"),
        [
            ("ImagePullBackOff", 'Back-off pulling image "nvcr.io/x:1"', "ERR_IMAGE"),
            ("CreateContainerConfigError", "secret X not found", "ERR_"),
        ],
    )
    def test_waiting_for_what_never_comes(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        reason: str,
        message: str,
        err_class: str,
    ) -> None:
        job = sdk.create_job(**lab.job("true"))
        assert sdk.get_failure_analysis(job.id) is None
        played.job_of(job.id).workers[0].issue = {"reason": reason, "message": message}
        analysis = sdk.get_failure_analysis(job.id)
        assert analysis is not None
        assert analysis["err_class"].startswith(err_class)
        [replica] = sdk.get_job_replicas(job.id)
        assert replica["status"]["readiness_issue"] == {"reason": reason, "message": message}
        assert replica["status"]["node"]["node_group_id"] == "ng-main"

    def test_events_that_warn(self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer) -> None:
        job = sdk.create_job(**lab.job("true"))
        one = played.job_of(job.id)
        one.events = [
            {"type": "Normal", "reason": "Scheduled", "count": 1},
            {"type": "Warning", "reason": "Preempted", "message": "Preempted by another job"},
        ]
        one.failed = 1
        one.turn("Failed")
        assert job.refresh().status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert (analysis["err_class"], analysis["retriable"]) == ("ERR_PREEMPTED", True)

    def test_a_log_that_is_behind_does_not_hide_how_it_ended(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        server.faults.log_lag = 1.0
        job = sdk.create_job(**lab.job("echo it went wrong; exit 7"))
        assert job.wait(timeout=LONG).message == "ended with exit code 7"
        row = sdk.store.get_job(job.id)
        assert row is not None
        assert row["exit_code"] == 7
        analysis = job.explain()
        assert analysis is not None
        assert (analysis["exit_code"], analysis["err_class"]) == (7, "ERR_PROGRAM")


class TestStopping:
    def test_a_stopped_job_is_removed_and_its_log_stays(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        job = sdk.create_job(
            **lab.job("echo up; sleep 600"), env_vars={"TOKEN": "for-a-while-only"}
        )
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        assert job.cancel()
        assert f"PATCH /jobs/{job.backend_job_id}" in server.calls()
        assert server.job_of(job.id).archived, "Lepton keeps stopped jobs for ever"
        assert not server.state.secrets
        assert "up" in sdk.get_job_logs(job.id)
        assert lab.sdk().get_job_status(job.id).status == "Canceled"

    def test_a_cancellation_that_was_not_heard_is_none(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        job = sdk.create_job(**lab.job("true"))
        with played.cut():
            assert sdk.cancel_job(job.id) is False
        played.job_of(job.id).turn("Stopped")
        assert sdk.get_job_status(job.id).status == "Paused"

    @pytest.mark.parametrize("is_cut", [False, True], ids=["seen at once", "seen later"])
    def test_a_cancellation_whose_answer_is_lost_is_one(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
        is_cut: bool,
    ) -> None:
        job = sdk.create_job(**lab.job("true"))
        stop = sdk.backend.transport.patch

        def unanswered(path: str, body: Any) -> Any:
            stop(path, body)
            played.faults.cut = is_cut
            raise BackendUnreachableError("the answer is lost")

        monkeypatch.setattr(sdk.backend.transport, "patch", unanswered)
        assert sdk.cancel_job(job.id) is not is_cut
        played.faults.cut = False
        assert sdk.get_job_status(job.id).status == "Canceled"

    def test_a_stop_that_did_not_arrive_is_no_cancellation(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def unheard(path: str, body: Any) -> Any:
            raise BackendUnreachableError("the connection is lost")

        job = sdk.create_job(**lab.job("true"))
        monkeypatch.setattr(sdk.backend.transport, "patch", unheard)
        assert sdk.cancel_job(job.id) is False
        played.job_of(job.id).turn("Stopped")
        assert sdk.get_job_status(job.id).status == "Paused"

    def test_one_that_had_ended_by_itself(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        job = sdk.create_job(**lab.job("true"))
        played.job_of(job.id).turn("Completed")
        sdk.backend.cancel(reference(sdk, job.id))
        assert sdk.get_job_status(job.id).status == "Complete"


class TestWhatThereIs:
    def test_shapes_volumes_permissions(self, sdk: LeptonSDK) -> None:
        found = sdk.list_resource_shapes()
        [four] = [one for one in found.values() if one["gpu_type"] == "gpu.4xh100-sxm"]
        assert four == {
            "cluster": "main",
            "gpu_type": "gpu.4xh100-sxm",
            "instance_type": "NVIDIA-H100-80GB-HBM3",
            "gpu_count": 4,
            "cpu_cores": 4.0,
            "system_memory": 16384,
            "gpu_memory": 327680,
            "backend_type": "lepton",
        }
        assert sdk.list_resource_shapes().keys() == found.keys(), "ids do not change"
        assert {"name": "lustre", "from_path": "/mnt/lustre", "type": "nfs"} in sdk.get_volumes()
        assert sdk.get_volumes("full") == []
        [permission] = sdk.get_storage_permissions("lustre", "ng-main")
        assert permission["path_prefix"] == "/team"

    def test_a_job_that_looks_is_not_known_at_once(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        real, asked = sdk.backend.transport.get, []

        def behind(path: str, /, **query: str | int) -> Any:
            if path.startswith("/jobs/") and len(asked) < 3:
                asked.append(path)
                path = "/jobs/none-such"
            return real(path, **query)

        sdk.backend.transport.get = behind  # type: ignore[method-assign]  # plays the wire
        assert sdk.check_path("lepton-volume://lustre/team")
        assert all(job.archived for job in server.state.jobs.values())

    def test_a_folder_with_more_names_than_a_page_of_log(
        self, sdk: LeptonSDK, server: LeptonServer
    ) -> None:
        folder = server.state.volume("lustre") / "team" / "many"
        folder.mkdir(parents=True)
        names = {"tao-look-end", *(f"{number}.jpg" for number in range(6000))}
        for name in names:
            (folder / name).touch()
        assert set(sdk.list_path("lepton-volume://lustre/team/many")) == names

    def test_paths_of_shared_storage(self, sdk: LeptonSDK, lab: LeptonLab) -> None:
        job = sdk.create_job(**lab.job('echo x > "$TAO_RESULTS_ROOT/$TAO_JOB_ID/model.pth"'))
        job.wait(timeout=LONG)
        assert sdk.check_path(job.results_dir)
        assert set(sdk.list_path(job.results_dir)) == {"model.pth", "tao_result.json"}
        assert sdk.get_checkpoints(job.id) == [f"{job.results_dir}/model.pth"]
        assert not sdk.check_path(f"{job.results_dir}/none")
        with pytest.raises(ValidationError, match="lepton-volume://volume/folder"):
            sdk.check_path("/mnt/lustre")
        with pytest.raises(ValidationError, match="only /team of the volume"):
            sdk.check_path("lepton-volume://lustre/elsewhere")
