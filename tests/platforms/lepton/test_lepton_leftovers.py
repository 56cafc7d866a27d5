"""Nothing doubles, nothing is left, and no secret is anywhere but where it must be."""

from __future__ import annotations

import json
import logging
import random
import signal
import time
import traceback
from typing import Any

import pytest
from lepton_lab import LeptonLab

from lab.lepton import OTHER_TOKEN, WORKSPACE, LeptonServer
from tao_sdk.errors import BackendUnreachableError, SubmissionUncertainError, TaoError
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import visible_command_lines
from tao_sdk.platforms.lepton import LeptonSDK, cleanup, naming
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.lepton.cleanup import Cleanup
from tao_sdk.platforms.lepton.client import LeptonClient

LONG = 60.0
CANARIES = {
    "HF_TOKEN": "canary-hf-21b7c90d",
    "ACCESS_KEY": "canary-access-77ab01",
    "SECRET_KEY": "canary-secret-99cd12",
    "NGC_KEY": "canary-ngc-5e6f7a",
}
OWN = "canary-own-variable-3c2b"


class TestOnce:
    def test_an_answer_that_is_lost_makes_one_job(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        server.faults.lose_next = ["POST /usersecrets", "POST /jobs"]
        server.faults.list_lag = 0.7
        job = sdk.create_job(**lab.counted_job("true"), env_vars={"TOKEN": "of-this-one-job"})
        assert job.wait(timeout=LONG).status == "Complete"
        assert lab.starts_of(job.id) == 1
        assert len(server.state.jobs) == 1
        assert server.calls().count("POST /jobs") == 1

    def test_a_job_that_comes_after_all_does_not_stay(
        self, lab: LeptonLab, server: LeptonServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The list is further behind than anybody waits: it was said that there is no job."""
        monkeypatch.setenv("LEPTON_SETTLE_SECONDS", "0")
        server.engine.runs = False
        server.faults.list_lag = 1.0
        server.faults.lose_next = ["POST /jobs"]
        sdk = lab.sdk()
        with pytest.raises(BackendUnreachableError):
            sdk.create_job(**lab.job("true"), env_vars={"TOKEN": "without-it-no-start"})
        [row] = sdk.store.list_jobs()
        assert (row["phase"], row["status"]) == ("rejected", "Error")
        assert not server.state.secrets, "without them it cannot start"
        [late] = server.state.jobs.values()
        eventually(lambda: time.time() - late.created > 1.0)
        later = lab.sdk()
        jobs = [job.id for job in later.create_jobs([lab.job("true")] * 3)]
        later.look(jobs)
        assert not late.archived, "looking removes nothing"
        later.get_statuses(jobs)
        assert late.archived
        later_still = server.state.add(late.body)
        later_still.turn("Starting")
        later_still.created -= 1
        server.faults.list_lag = 0.0
        later.get_statuses(jobs)
        assert later_still.archived, "it was in the list, so it is looked for at once"
        assert not later.backend._cleanup.sweep_is_due

    def test_the_oldest_of_several_is_the_one(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        """Somebody's copy of a job, with its labels, is another job."""
        job = sdk.create_job(**lab.job("true"))
        body = json.loads(json.dumps(played.job_of(job.id).body))
        copy = played.state.add(body)
        copy.turn("Failed")
        assert not sdk.get_job_status(job.id).terminal


class TestSweep:
    def sweep(self, lab: LeptonLab, **keywords: Any) -> None:
        files = JobFiles(lab.folder / "state.lepton")
        client = LeptonClient(WorkspaceAccess.find())
        Cleanup(client, files, lab.folder / "last-sweep").sweep(**keywords)

    def test_secrets_of_ended_jobs_go_and_others_stay(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        played.state.secrets["SOMEBODY_ELSES"] = "x"
        jobs = [
            sdk.create_job(**lab.job("true"), env_vars={"TOKEN": f"token-{state}-long-enough"})
            for state in ("Running", "Completed", "Failed", "Stopped", "Queueing")
        ]
        for job, state in zip(
            jobs, ("Running", "Completed", "Failed", "Stopped", "Queueing"), strict=True
        ):
            played.job_of(job.id).turn(state)
        self.sweep(lab)
        left = {one.job for name in played.state.secrets if (one := naming.parse_secret(name))}
        assert left == {jobs[n].id.replace("-", "") for n in (0, 3, 4)}
        assert "SOMEBODY_ELSES" in played.state.secrets

    def test_secrets_without_a_job_go_once_they_are_old(
        self, lab: LeptonLab, played: LeptonServer
    ) -> None:
        now = int(time.time())
        new = str(naming.SecretName("a" * 32, now - 60, "TOKEN"))
        old = str(naming.SecretName("b" * 32, now - 7200, "TOKEN"))
        played.state.secrets |= {new: "x", old: "y"}
        self.sweep(lab)
        assert list(played.state.secrets) == [new]

    def test_secrets_of_a_job_that_is_in_no_page_stay(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A list that others shorten while it is read lacks a job."""
        job = sdk.create_job(**lab.job("true"), env_vars={"TOKEN": "of-one-that-waits"})
        played.job_of(job.id).turn("Queueing")
        real = LeptonClient.pages
        monkeypatch.setattr(
            LeptonClient, "pages", lambda *a, **k: real(*a, **k) if "q" in k else iter(())
        )
        self.sweep(lab, abandoned=-1)
        assert played.state.secrets

    def test_secrets_that_came_late_go_at_once(self, lab: LeptonLab, played: LeptonServer) -> None:
        job_id = "0f3a9f6e-3f0a-4b44-9b6e-1c2d3e4f5a6b"
        JobFiles(lab.folder / "state.lepton").mark(job_id, naming.UNWANTED)
        secret = naming.SecretName(job_id.replace("-", ""), int(time.time()), "TOKEN")
        played.state.secrets[str(secret)] = "x"
        self.sweep(lab)
        assert not played.state.secrets

    def test_a_process_that_attends_sweeps_again(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(cleanup, "SWEEP_SECONDS", 0.0)
        job = sdk.create_job(**lab.job("true"))
        sdk.get_job_status(job.id)
        played.state.secrets[str(naming.SecretName("b" * 32, 1, "TOKEN"))] = "of a lost store"
        sdk.get_job_status(job.id)
        assert len(played.state.secrets) == 1, "that of the job, which has not ended"


class TestEnds:
    """The store remembers of which jobs secrets are left."""

    def ended_job(self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer) -> str:
        job = sdk.create_job(**lab.job("true"), env_vars={"TOKEN": "kept-for-now"})
        played.job_of(job.id).turn("Completed")
        return job.id

    def test_a_failed_deletion_is_tried_again_when_no_job_is_open(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        job_id = self.ended_job(sdk, lab, played)
        [secret] = played.state.secrets
        played.faults.refuse_next = [(f"DELETE /usersecrets/{secret}", 403)] * 20
        assert sdk.get_job_status(job_id).status == "Complete"
        later = lab.sdk()
        later.reconcile()
        assert played.state.secrets, "the deletion was refused"
        played.faults.refuse_next.clear()
        later.reconcile()
        assert not played.state.secrets
        calls = len(played.requests)
        later.reconcile()
        assert played.calls(calls) == [], "nothing is left to do"

    def test_an_outage_delays_it(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        job_id = self.ended_job(sdk, lab, played)
        assert sdk.look([job_id])[job_id].status == "Complete"
        assert played.state.secrets, "looking removes nothing"
        with played.cut():
            lab.sdk().reconcile()
        assert played.state.secrets
        lab.sdk().reconcile()
        assert not played.state.secrets

    def test_a_workspace_that_is_not_found_has_cleaned_nothing(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        job_id = self.ended_job(sdk, lab, played)
        assert sdk.look([job_id])[job_id].status == "Complete"
        monkeypatch.setenv("LEPTON_WORKSPACE_ID", "another")
        lab.sdk().reconcile()
        monkeypatch.setenv("LEPTON_WORKSPACE_ID", WORKSPACE)
        assert played.state.secrets
        lab.sdk().reconcile()
        assert not played.state.secrets

    def test_a_refused_job_whose_secrets_stay_is_in_doubt_until_they_are_gone(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("LEPTON_SETTLE_SECONDS", "0")
        plan = sdk.plan(**lab.job("true"), env_vars={"TOKEN": "of-one-that-is-refused"})
        [secret] = plan.intent["secrets"]
        deletion = f"DELETE /usersecrets/{secret}"
        played.faults.refuse_next = [("POST /jobs", 400), (deletion, 403), (deletion, 403)]
        with pytest.raises(SubmissionUncertainError, match="refused by the test"):
            sdk.submit(plan)
        assert played.state.secrets
        later = lab.sdk()
        later.reconcile()
        assert not played.state.secrets
        row = later.store.get_job(plan.job_id)
        assert row is not None
        assert row["phase"] == "rejected"

    def test_what_a_killed_observer_left_is_found_by_the_next(
        self, lab: LeptonLab, server: LeptonServer
    ) -> None:
        source = (
            "import json, os, signal, sys\n"
            "from tao_sdk.platforms.lepton.cleanup import Cleanup\n"
            "Cleanup.clean = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
            "sdk.list_jobs()\n"
            "job = sdk.create_job(**json.loads(sys.argv[1]), env_vars={'TOKEN': 'of-the-killed'})\n"
            "print(job.id, flush=True)\n"
            "job.wait(timeout=60)\n"
            "signal.pause()"
        )
        child = lab.start_python(source, json.dumps(lab.job("true")))
        child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL
        assert server.state.secrets
        eventually(lambda: all(job.completed for job in server.state.jobs.values()))
        with lab.sdk() as sdk:
            sdk.get_statuses([job.id for job in sdk.list_jobs()])
        assert not server.state.secrets


class TestSecrecy:
    @pytest.fixture
    def watched(self, lab: LeptonLab, monkeypatch: pytest.MonkeyPatch) -> None:
        """After the lab, which takes all of them out of the environment."""
        for name, value in CANARIES.items():
            monkeypatch.setenv(name, value)

    @pytest.mark.usefixtures("watched")
    def test_canaries(
        self, lab: LeptonLab, server: LeptonServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        with lab.sdk() as sdk:
            asked = {**lab.job("echo up; sleep 600"), "image": "nvcr.io/nvidia/tao:7"}
            job = sdk.create_job(**asked, env_vars={"MINE": OWN})
            eventually(lambda: "up" in sdk.get_job_logs(job.id))
            texts = {
                "command lines": visible_command_lines(),
                "requests": server.readable(),
                "jobs": json.dumps([one.describe() for one in server.state.jobs.values()]),
            }
            assert job.cancel()
            failing = sdk.create_job(**lab.job('echo "$MINE"; exit 3'), env_vars={"MINE": OWN})
            failing.wait(timeout=LONG)
            texts["explanation"] = json.dumps(failing.explain())
        texts["our log"] = caplog.text
        for path in (path for path in lab.folder.rglob("*") if path.is_file()):
            texts[str(path)] = path.read_bytes().decode("utf-8", "replace")
        found = [
            f"{canary} in {where}"
            for where, text in texts.items()
            for canary in (*CANARIES.values(), OWN)
            if canary in text
        ]
        assert found == []
        sent = [one for one in server.requests if OWN in one["body"]]
        assert {(one["method"], one["path"]) for one in sent} == {("POST", "/usersecrets")}
        for name, canary in CANARIES.items():
            assert [one for one in server.requests if canary in one["body"]], f"{name} went along"
        assert not server.state.secrets, "removed after the end"

    @pytest.mark.usefixtures("watched")
    @pytest.mark.parametrize("call", ["POST /usersecrets", "POST /imagepullsecrets"])
    @pytest.mark.parametrize("status", [400, 500])
    def test_a_server_that_quotes_what_it_refuses(
        self, lab: LeptonLab, played: LeptonServer, call: str, status: int
    ) -> None:
        played.faults.quotes = True
        played.faults.refuse_next = [(call, status)] * 3
        asked = {
            **lab.job("true"),
            "image": "nvcr.io/nvidia/tao:7",
            "env_vars": {"MINE": f'"{OWN}"\n'},
        }
        with lab.sdk() as sdk:
            with pytest.raises(TaoError) as error:
                sdk.create_job(**asked)
            [row] = sdk.store.list_jobs()
        said = "".join(traceback.format_exception(error.value)) + json.dumps(dict(row))
        assert "refused by the test" in said
        assert not [canary for canary in (*CANARIES.values(), OWN) if canary in said]

    @pytest.mark.usefixtures("watched")
    def test_another_process_quotes_the_log_without_its_secrets(
        self, lab: LeptonLab, server: LeptonServer
    ) -> None:
        script = 'echo "error: it is $MINE"; exit 3'
        job_id = lab.run_python(
            "import json, sys\n"
            "print(sdk.create_job(**json.loads(sys.argv[1]), env_vars={'MINE': sys.argv[2]}).id)",
            json.dumps(lab.job(script)),
            OWN,
        ).strip()
        sdk = lab.sdk()
        assert sdk.wait(job_id, timeout=LONG).status == "Error"
        analysis = sdk.get_failure_analysis(job_id)
        assert analysis is not None
        assert analysis["exit_code"] == 3
        assert "error: it is [secret]" in json.dumps(analysis)
        assert OWN not in json.dumps(analysis)
        assert not JobFiles(lab.folder / "state.lepton").is_marked(job_id, naming.FINGERPRINTS)

    def test_with_another_token_nothing_of_the_log_is_quoted(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        server: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The fingerprints of the job's secrets have the token as their key."""
        job = sdk.create_job(**lab.job('echo "it is $MINE"; exit 3'), env_vars={"MINE": OWN})
        eventually(lambda: server.job_of(job.id).completed)
        monkeypatch.setenv("LEPTON_AUTH_TOKEN", OTHER_TOKEN)
        analysis = lab.sdk().get_failure_analysis(job.id)
        assert analysis is not None
        assert analysis["exit_code"] == 3
        assert "it is" not in json.dumps(analysis)


_ENDINGS = ("true", "exit 3", "kill -9 $PPID; sleep 9", "sleep 600", "trap '' TERM; sleep 600")


@pytest.mark.timeout(600)
def test_fifty_jobs_of_every_ending_leave_nothing(
    lab: LeptonLab, server: LeptonServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are killed as well, at any moment; then another process looks."""
    monkeypatch.setenv("HF_TOKEN", "canary-of-the-fifty")
    server.engine.grace = 0.3
    server.faults.busy = 0.05
    dice = random.Random(50)
    killed = (
        "import json, os, signal, sys, threading\n"
        "threading.Timer(float(sys.argv[2]), os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
        "print('ready', flush=True)\n"
        "for asked in json.loads(sys.argv[1]):\n"
        "    sdk.create_job(**asked)\n"
        "signal.pause()"
    )
    children = []
    for _ in range(5):
        asked = [lab.counted_job(script) for script in _ENDINGS]
        after = str(dice.uniform(0.05, 1.2))
        children.append(lab.start_python(killed, json.dumps(asked), after))
    for child in children:
        child.communicate(timeout=60)
    with lab.sdk() as sdk:
        jobs = sdk.create_jobs([lab.counted_job(script) for script in _ENDINGS * 5])
        sdk.reconcile()
        assert len(jobs) == 25
        for job in sdk.list_jobs():
            eventually(lambda job=job: sdk.get_job_status(job.id).status != "Pending")
        for job in sdk.list_jobs():
            if not job.terminal:
                eventually(
                    lambda job=job: (
                        sdk.cancel_job(job.id) or sdk.get_job_status(job.id).terminal  # by itself
                    )
                )
        statuses = {job.id: sdk.get_job_status(job.id) for job in sdk.list_jobs()}
        assert all(status.terminal for status in statuses.values())
        rows = {row["job_id"]: row for row in sdk.store.list_jobs()}
    with lab.sdk() as sdk:
        sdk.reconcile()
    assert not server.state.secrets
    alive = [job for job in server.state.jobs.values() if not job.archived]
    assert {job.state for job in alive} <= {"Completed", "Failed"}
    known = {job_id for job_id, row in rows.items() if row["phase"] == "submitted"}
    assert {job.labels["tao-sdk-job-id"] for job in server.state.jobs.values()} == known
    assert all(lab.starts_of(job_id) <= 1 for job_id in rows)
