"""Commands that only look leave the platform as it is, and note nothing but what they saw."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pprint import pformat
from typing import Any

import pytest

from tao_sdk.platforms.conformance.lab import Lab, eventually, reference
from tao_sdk.platforms.sdk import PlatformSDK

_OBSERVED = {
    *("status", "message", "exit_code", "started_at", "ended_at", "observed_at", "updated_at"),
    *("failure", "cleanup_due"),
}


class TestLooking:
    @pytest.mark.timeout(400)
    def test_status_ls_and_explain_change_nothing(self, lab: Lab) -> None:
        if lab.snapshot() is None:
            pytest.skip("this lab cannot show its platform's state as a whole")
        sdk = lab.sdk()
        running = sdk.create_job(**lab.job("echo up; sleep 600"))
        well, badly = sdk.create_job(**lab.job("true")), sdk.create_job(**lab.job("exit 3"))
        waiting = lab.pending_job(sdk)
        eventually(lambda: "up" in sdk.get_job_logs(running.id))
        ended = [reference(sdk, job.id) for job in (well, badly)]
        eventually(
            lambda: all(
                seen.state is not None and seen.state.terminal
                for seen in sdk.backend.observe(ended).values()
            )
        )
        for job in (well, badly):
            lab.wait_until_finished(job)
        ids = [job.id for job in (running, well, badly, waiting) if job is not None]
        before, rows, events = _settled(lab), _rows(sdk), _kinds(sdk)

        for _ in range(2):
            _tao_sdk(lab, "ls")
            told = _tao_sdk(lab, "status", *ids)
            _tao_sdk(lab, "explain", badly.id)

        after_looking = lab.snapshot()
        assert after_looking == before, _difference(before, after_looking)
        for word in ("Running", "Complete", "Error", *(["Pending"] if waiting else [])):
            assert word in told
        after = _rows(sdk)
        changed = {
            column
            for job_id, row in after.items()
            for column, value in row.items()
            if value != rows[job_id][column]
        }
        assert changed <= _OBSERVED
        assert set(_kinds(sdk)[len(events) :]) <= {"status"}


def _settled(lab: Lab) -> Any:
    """The platform's state, once it has noted what happened."""
    seen = [lab.snapshot()]

    def is_stable() -> bool:
        seen.append(lab.snapshot())
        return bool(seen[-1] == seen[-2])

    eventually(is_stable)
    return seen[-1]


def _difference(before: object, after: object) -> str:
    old, new = pformat(before).splitlines(), pformat(after).splitlines()
    return "\n".join(difflib.unified_diff(old, new, lineterm=""))


def _rows(sdk: PlatformSDK) -> dict[str, dict[str, Any]]:
    return {row["job_id"]: row for row in sdk.store.list_jobs()}


def _kinds(sdk: PlatformSDK) -> list[str]:
    return [str(event["kind"]) for event in sdk.store.events()]


def _tao_sdk(lab: Lab, *words: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "tao_sdk.cli", "--state", str(lab.state_file), *words],
        env=dict(lab.environment()),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
