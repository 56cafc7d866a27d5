"""kill -9 of the client at every step of a submission: nothing doubles, nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tao_sdk.platforms.conformance.lab import Lab, eventually
from tao_sdk.platforms.sdk import PlatformSDK

STEPS = (
    "before the row",
    "after the row",
    "at the first call of submit",
    "after submit",
    "before the confirmation",
    "after the confirmation",
)


def die_at(sdk: PlatformSDK, step: str) -> None:
    """Arrange for this process to be killed at a step of its next submission."""

    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def around(owner: Any, name: str, *, before: bool) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if before:
                die()
            result = real(*args, **kwargs)
            die()
            return result

        setattr(owner, name, wrapped)

    if step == "before the row":
        around(sdk.store, "begin_submissions", before=True)
    elif step == "after the row":
        around(sdk.store, "begin_submissions", before=False)
    elif step == "at the first call of submit":
        sdk.backend.transport.calls.record = die  # type: ignore[method-assign]  # dies there
    elif step == "after submit":
        around(sdk.backend, "submit", before=False)
    elif step == "before the confirmation":
        around(sdk.store, "confirm_submission", before=True)
    elif step == "after the confirmation":
        around(sdk.store, "confirm_submission", before=False)
    else:
        raise AssertionError(step)


_CHILD = """
import json, sys
from tao_sdk.platforms.conformance.crashes import die_at
sdk.list_jobs()
if sys.argv[2]:
    die_at(sdk, sys.argv[2])
print("ready", flush=True)
sdk.create_job(**json.loads(sys.argv[1]))
print("submitted", flush=True)
"""


class TestKilledClient:
    @pytest.mark.parametrize("step", STEPS)
    def test_at_each_step(self, lab: Lab, step: str) -> None:
        child = lab.start_python(_CHILD, json.dumps(lab.counted_job("true")), step)
        _out, err = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL, err
        check_exactly_once(lab)

    def test_at_each_step_of_its_own(self, lab: Lab) -> None:
        """The steps inside `submit` are the platform's; its lab names them."""
        for step, source in lab.submission_steps().items():
            child = lab.start_python(f"{source}\n{_CHILD}", json.dumps(lab.counted_job("true")), "")
            _out, err = child.communicate(timeout=60)
            assert child.returncode == -signal.SIGKILL, f"{step}: {err}"
            check_exactly_once(lab)

    def test_at_random_moments(self, lab: Lab) -> None:
        """A seeded sample; call `kill_at_random` yourself for a longer run."""
        kill_at_random(lab, times=lab.killed_clients, seed=20)

    def test_interrupted_client_says_which_job_it_was(self, lab: Lab) -> None:
        sdk = lab.sdk()
        real = sdk.backend.submit

        def interrupted(plan: Any) -> Any:
            real(plan)
            raise KeyboardInterrupt

        sdk.backend.submit = interrupted  # type: ignore[method-assign]  # dies there
        with pytest.raises(KeyboardInterrupt) as caught:
            sdk.create_job(**lab.counted_job("true"))
        job_id = caught.value.tao_job_id  # type: ignore[attr-defined]  # a note on it
        assert caught.value.tao_launch_uncertain is False  # type: ignore[attr-defined]  # put there by a submission
        assert lab.sdk().wait(job_id, timeout=60).status == "Complete"
        assert lab.starts_of(job_id) == 1


def kill_at_random(lab: Lab, *, times: int, seed: int) -> dict[str, int]:
    """Kill clients at random moments of a submission; afterwards everything must add up."""
    moments = random.Random(seed)  # noqa: S311 - a reproducible sample, not cryptography
    text = json.dumps(lab.counted_job("true"))
    longest = _time_of_a_submission(lab, text)
    finished = 0
    for _ in range(times):
        child = lab.start_python(_CHILD, text, "")
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0, longest))  # the fault to inject, not a wait
        child.kill()
        out, _err = child.communicate(timeout=60)
        finished += "submitted" in out
    rows = check_exactly_once(lab)
    return {
        "clients that finished first": finished,
        "jobs run": sum(row["phase"] == "submitted" for row in rows.values()) - 1,
        "jobs never submitted": sum(row["phase"] == "rejected" for row in rows.values()),
        "killed before the row": times + 1 - len(rows),
    }


def _time_of_a_submission(lab: Lab, text: str) -> float:
    child = lab.start_python(_CHILD, text, "")
    assert child.stdout is not None
    child.stdout.readline()
    began = time.monotonic()
    assert child.stdout.readline() == "submitted\n"
    took = time.monotonic() - began
    child.communicate(timeout=60)
    return took * 1.2


def check_exactly_once(lab: Lab) -> dict[str, dict[str, Any]]:
    """Every job in the store exactly once in reality, and no other job in reality."""
    sdk = lab.sdk()
    sdk.reconcile()
    rows = {row["job_id"]: row for row in sdk.store.list_jobs()}
    for job_id in rows:
        eventually(lambda job_id=job_id: sdk.get_job_status(job_id).terminal)  # type: ignore[misc]  # bound now: the loop goes on
    rows = {row["job_id"]: row for row in sdk.store.list_jobs()}
    for job_id, row in rows.items():
        if row["phase"] == "rejected":
            assert row["status"] == "Error"
            assert row["message"].startswith(("never submitted", "not submitted"))
            assert lab.starts_of(job_id) == 0
        else:
            assert (row["phase"], row["status"]) == ("submitted", "Complete"), row["message"]
            assert lab.starts_of(job_id) == 1
    assert lab.jobs_in_reality() == {
        job_id for job_id, row in rows.items() if row["phase"] == "submitted"
    }
    return rows
