"""Jobs of the SDK on a cluster of the lab: what a test says about them, and looks at."""

from __future__ import annotations

from typing import Any

from slurm_lab import SlurmPlatformLab

from tao_sdk import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.slurm import SlurmSDK

CANARY = "canary-of-this-test-0451"
"""What every job of these tests gets as its credential."""
SAY_ATTEMPT = 'echo "attempt $TAO_ATTEMPT, restart ${SLURM_RESTART_COUNT:-0}, has $MY_TOKEN";'
UNTIL_STOPPED = "while :; do sleep 0.1; done"
SECOND_TIME_WELL = f'{SAY_ATTEMPT} [ "$TAO_ATTEMPT" -gt 1 ] || {UNTIL_STOPPED}'
"""Runs until somebody ends it; the second time it ends well by itself."""
LONG = 120.0


def start(sdk: SlurmSDK, script: str, **options: Any) -> Job:
    return sdk.create_job(**keywords(script, **options))


def keywords(script: str, **options: Any) -> dict[str, Any]:
    """For `create_job`: on the nodes as they are, with a credential, without GPUs."""
    return {
        "image": "",
        "command": script,
        "gpu_count": 0,
        "env_vars": {"MY_TOKEN": CANARY},
        **options,
    }


def running(sdk: SlurmSDK, script: str, **options: Any) -> Job:
    """A job that has begun to write its log."""
    job = start(sdk, f"echo begun; {script}", **options)
    eventually(lambda: "begun" in sdk.get_job_logs(job.id))
    return job


def submissions(lab: SlurmPlatformLab, job: Job) -> list[str]:
    """How often the job was handed to Slurm: a line each."""
    return (lab.slurm.shared / "jobs" / job.id / "submissions").read_text().splitlines()


def slurm_id(lab: SlurmPlatformLab, job: Job) -> str:
    """Slurm's number of the newest one."""
    return submissions(lab, job)[-1].split()[1]


def has_credentials(lab: SlurmPlatformLab, job: Job) -> bool:
    """Is the canary anywhere on the shared file system, beside the log that the test wrote?"""
    folder = lab.slurm.shared / "jobs" / job.id
    found = [path for path in folder.rglob("*") if path.is_file() and CANARY in path.read_text()]
    return any("slurm-logs" not in path.parts for path in found)
