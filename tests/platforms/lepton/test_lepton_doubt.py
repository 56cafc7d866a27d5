"""Interrupted submissions: what was promised of them holds, whatever happens later."""

from __future__ import annotations

import json
import math
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from lepton_lab import LeptonLab

from lab.lepton import FORBIDDEN, LeptonServer, PlayedJob
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.lepton import LeptonSDK

LONG = 60.0
WITH_SECRET = {"env_vars": {"TOKEN": "of-this-one-job"}}
NGC_IMAGE = {"image": "nvcr.io/nvidia/tao:7"}


def phase_of(sdk: LeptonSDK) -> tuple[str, str]:
    [row] = sdk.store.list_jobs()
    return row["phase"], row["status"]


def the_job(server: LeptonServer) -> PlayedJob:
    eventually(lambda: server.state.jobs)
    [job] = server.state.jobs.values()
    return job


class TestLateCreate:
    """Something on the way keeps the request that makes a job, and lets it through later."""

    @pytest.mark.parametrize("more", [{}, WITH_SECRET], ids=["no secrets", "secrets"])
    def test_what_was_never_submitted_never_runs(
        self,
        lab: LeptonLab,
        server: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
        more: dict[str, Any],
    ) -> None:
        monkeypatch.setenv("LEPTON_SETTLE_SECONDS", "0.2")
        server.faults.late_next = [("POST /jobs", 2.0)]
        with lab.sdk() as sdk:
            with pytest.raises(BackendUnreachableError):
                sdk.create_job(**lab.counted_job("true"), **more)
            assert phase_of(sdk) == ("rejected", "Error")
            assert not server.state.jobs, "it is on its way"
        late = the_job(server)
        eventually(lambda: late.workers[0].issue, LONG)
        with lab.sdk() as sdk:  # no job is open
            sdk.get_statuses([job.id for job in sdk.list_jobs()])
        assert late.archived
        assert lab.starts_of(late.labels["tao-sdk-job-id"]) == 0
        assert not server.state.secrets

    def test_a_job_that_comes_before_that_is_said_is_removed(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        """Nobody would ever start it: its secrets are gone."""
        plan = sdk.plan(**lab.counted_job("true"), **WITH_SECRET)
        remove = sdk.backend._submitter.remove_secrets

        def remove_and_let_it_come(names: list[str]) -> None:
            remove(names)
            server.state.add(json.loads(plan.artefacts[1].text))

        sdk.backend._submitter.remove_secrets = remove_and_let_it_come  # type: ignore[method-assign, assignment]  # plays the wire
        server.faults.refuse_next = [("POST /jobs", 500)]
        with pytest.raises(BackendUnreachableError):
            sdk.submit(plan)
        assert phase_of(sdk) == ("rejected", "Error")
        assert the_job(server).archived

    def test_a_job_that_had_begun_is_not_denied(
        self, lab: LeptonLab, server: LeptonServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A client is killed; the list tells of its job only after its secrets were removed."""
        child = lab.start_python(
            "import json, os, signal, sys\n"
            "from tao_sdk.platforms.lepton.submit import Submitter\n"
            "real = Submitter.create_job\n"
            "die = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
            "Submitter.create_job = lambda *a: (real(*a), die())[0]\n"
            "sdk.create_job(**json.loads(sys.argv[1]), env_vars={'TOKEN': 'of-the-killed'})",
            json.dumps(lab.counted_job("echo up; sleep 600")),
        )
        child.communicate(timeout=LONG)
        assert child.returncode == -signal.SIGKILL
        eventually(lambda: the_job(server).state == "Running")
        server.faults.list_lag = math.inf
        monkeypatch.setenv("LEPTON_SETTLE_SECONDS", "5")

        def tell_once_it_could_not_start() -> None:
            eventually(lambda: not server.state.secrets)
            server.faults.list_lag = 0.0

        with lab.sdk() as sdk, ThreadPoolExecutor(1) as thread:
            told = thread.submit(tell_once_it_could_not_start)
            sdk.reconcile()
            told.result()
            assert phase_of(sdk)[0] == "submitted"
            [job] = sdk.list_jobs()
            assert job.refresh().status == "Running"
            assert job.cancel()

    def test_after_a_killed_settler_no_job_is_adopted_that_cannot_start(
        self, lab: LeptonLab, server: LeptonServer
    ) -> None:
        child = lab.start_python(
            "import json, os, signal, sys\n"
            "from tao_sdk.platforms.lepton.submit import Submitter\n"
            "real = Submitter.remove_secrets\n"
            "die = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
            "Submitter.remove_secrets = lambda *a: (real(*a), die())[0]\n"
            "sdk.create_job(**json.loads(sys.argv[1]))",
            json.dumps(lab.counted_job("true")),
        )
        server.faults.late_next = [("POST /jobs", 6.0)]
        child.communicate(timeout=LONG)
        assert child.returncode == -signal.SIGKILL
        eventually(lambda: the_job(server).workers[0].issue, LONG)
        with lab.sdk() as sdk:
            sdk.reconcile()
            assert phase_of(sdk) == ("rejected", "Error")
        assert the_job(server).archived


class TestSecrets:
    def test_an_answer_that_is_lost_while_the_list_is_behind(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        server.faults.lose_next = ["POST /usersecrets"]
        server.faults.secrets_unseen = True
        job = sdk.create_job(**lab.job("true"), **WITH_SECRET)
        assert job.wait(timeout=LONG).status == "Complete"

    def test_what_was_made_before_a_refusal_goes(
        self, sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
    ) -> None:
        played.faults.lose_next = ["POST /usersecrets"]
        played.faults.secrets_unseen = True
        plan = sdk.plan(**lab.job("true"), **WITH_SECRET)
        real = sdk.backend.transport.create

        def then_refused(path: str, body: Any, *hide: Any) -> Any:
            try:
                return real(path, body, *hide)
            finally:
                played.faults.refuse_next = [("POST /usersecrets", 403)]

        sdk.backend.transport.create = then_refused  # type: ignore[method-assign, assignment]
        with pytest.raises(BackendUnreachableError, match="POST /usersecrets may or may not"):
            sdk.submit(plan)
        assert phase_of(sdk) == ("rejected", "Error")
        assert not played.state.secrets

    def test_a_pull_secret_whose_answer_is_lost(
        self,
        sdk: LeptonSDK,
        lab: LeptonLab,
        played: LeptonServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("NGC_KEY", "nvapi-canary-of-ngc")
        played.faults.lose_next = ["POST /imagepullsecrets"]
        sdk.create_job(**{**lab.job("true"), **NGC_IMAGE})
        assert played.state.jobs


@pytest.mark.parametrize(
    ("name", "value"), [("LEPTON_AUTH_TOKEN", FORBIDDEN), ("LEPTON_WORKSPACE_ID", "none-such")]
)
def test_nothing_raises_out_of_a_poll(
    lab: LeptonLab,
    server: LeptonServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    """A killed client's submission is unsettled, and the workspace does not let us in."""
    child = lab.start_python(
        "import json, os, signal, sys\n"
        "from tao_sdk.platforms.lepton.submit import Submitter\n"
        "Submitter.create_job = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "sdk.create_job(**json.loads(sys.argv[1]))",
        json.dumps(lab.job("true")),
    )
    child.communicate(timeout=LONG)
    with lab.sdk() as sdk:
        [row] = sdk.store.list_jobs()
    with monkeypatch.context() as patch, lab.sdk() as sdk:
        patch.setenv(name, value)
        assert sdk.get_job_status(row["job_id"]).status == "Pending"
        assert not sdk.cancel_job(row["job_id"])
        assert phase_of(sdk)[0] == "submitting"
    with lab.sdk() as sdk:
        assert sdk.get_job_status(row["job_id"]).status == "Error"
