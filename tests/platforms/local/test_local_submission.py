"""Submissions that do not go as planned, tried on the simplest platform."""

from __future__ import annotations

import json
import pickle
import pprint
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.follower import Follower
from tao_sdk import LocalSDK
from tao_sdk.platforms.backend import JobRef, Plan
from tao_sdk.platforms.local.submit import stage

LONG = 60
SECRET = "hunter2-very-secret"  # noqa: S105 - not a secret of anybody


class TestInterruptedTogether:
    """Ctrl-C while a platform takes many jobs at once."""

    def test_before_any_was_taken(self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(_: Sequence[Plan]) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(sdk.backend, "submit_together", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            sdk.create_jobs([{"command": "true", "gpu_count": 0}] * 2)
        jobs = sdk.list_jobs()
        assert caught.value.tao_job_id in {job.id for job in jobs}  # type: ignore[attr-defined]  # put there by a submission
        assert caught.value.tao_launch_uncertain is False  # type: ignore[attr-defined]  # put there by a submission
        assert [job.refresh().status for job in jobs] == ["Canceled"] * 2
        assert sdk.reconcile() == []

    def test_after_one_was_taken(self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(plans: Sequence[Plan]) -> None:
            sdk.backend.submit(plans[0])
            raise KeyboardInterrupt

        monkeypatch.setattr(sdk.backend, "submit_together", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sdk.create_jobs([{"command": "true", "gpu_count": 0}] * 2)
        ends = sdk.wait_all([job.id for job in sdk.list_jobs()], timeout=LONG)
        assert sorted(end.status for end in ends.values()) == ["Canceled", "Complete"]


@pytest.mark.parametrize("step", ["rename", "rmtree"])
def test_a_killed_settlement_leaves_no_folder_behind(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The next process settles the job once more, from where the killed one stopped."""

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    plan = sdk.plan(command="true", gpu_count=0)
    sdk.backend.prepare()
    orders, staged = plan.payload
    stage(orders.job_folder, staged)
    job = JobRef(plan.identity, plan.intent, plan.results_dir)
    with monkeypatch.context() as cut:
        cut.setattr(Path if step == "rename" else shutil, step, killed)
        with pytest.raises(Killed):
            sdk.backend.settle([job])
    assert sdk.backend.settle([job]) == {plan.job_id: None}
    assert list((sdk.work_dir / "jobs").iterdir()) == []
    assert not Path(plan.results_dir).exists()


def test_nothing_that_walks_through_a_plan_finds_a_secret(sdk: LocalSDK) -> None:
    plan = sdk.plan(command="true", gpu_count=0, env_vars={"HF_TOKEN": SECRET})
    texts = [repr(plan), f"{plan}", pprint.pformat(plan), json.dumps(plan, default=str)]
    texts += [plan.render(), json.dumps(plan.to_dict(), default=str), str(plan.request)]
    assert not any(SECRET in text for text in texts)
    with pytest.raises(TypeError):
        list(plan)  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(TypeError, match="Secret cannot be pickled"):
        pickle.dumps(plan)


def test_a_client_with_many_open_files(sdk: LocalSDK) -> None:
    """Numbers of descriptors above 1,023 are beyond what select(2) can take."""
    program = f"""
import os, resource
from tao_sdk import LocalSDK
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
sdk = LocalSDK(state_file={str(sdk._state_file)!r}, work_dir={str(sdk.work_dir)!r})
jobs = [sdk.create_job(command="echo up", gpu_count=0) for _ in range(2)]
print(*[job.wait(timeout={LONG}).status for job in jobs], *jobs[0].logs())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * LONG
    )
    assert done.stdout.split() == ["Complete", "Complete", "up"], done.stderr


def test_a_log_that_another_thread_closes(sdk: LocalSDK) -> None:
    job = sdk.create_job(command="echo up; sleep 600", gpu_count=0)
    stream = sdk.stream_logs(job.id)
    assert next(stream) == "up"
    follower = Follower(stream)
    stream.close()
    assert follower.all(LONG) == []
    assert list(stream) == []
