"""The demo: train a small model on the local platform, then evaluate its last checkpoint.

Everything it makes is below `.demo/` in the current folder. Run by `make demo`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tao_sdk import Job, LocalSDK

TRAINER = Path(__file__).parent / "tiny_trainer"
WORK = Path(".demo").absolute()


def trainer(action: str, *settings: str) -> str:
    """The command line of one action of the demo trainer."""
    spec = TRAINER / "specs" / f"{action}.yaml"
    return shlex.join([sys.executable, str(TRAINER), action, "-e", str(spec), *settings])


def follow(job: Job) -> None:
    """Show a job from start to end; leave with its exit code if it failed."""
    print(f"\n{job.action}: job {job.id}\n  address {job.uri}")
    for line in job.logs(follow=True):
        print(f"  | {line}")
    status = job.wait()
    print(f"  {status.status}: {status.message}")
    if status.status != "Complete":
        reason = job.explain() or {}
        print(f"  {reason.get('cause')}\n  {reason.get('suggestion')}", file=sys.stderr)
        sys.exit(int(reason.get("exit_code") or 1))


def main() -> None:
    sdk = LocalSDK(state_file=WORK / "state.json", work_dir=WORK / "jobs")

    train = sdk.create_job(
        command=trainer("train"), gpu_count=0, network_arch="tiny", action="train"
    )
    follow(train)
    checkpoints = sdk.get_checkpoints(train.id)
    print(f"  {len(checkpoints)} checkpoints, the last is {Path(checkpoints[-1]).name}")

    evaluate = sdk.create_job(
        command=trainer("evaluate", f"evaluate.checkpoint={checkpoints[-1]}"),
        gpu_count=0,
        network_arch="tiny",
        action="evaluate",
        parent_job_id=train.id,
    )
    follow(evaluate)
    print(f"\nResults are in {train.results_dir}")
    print(f"See them all again: {sys.prefix}/bin/tao-sdk --state {WORK / 'state.json'} ls")


if __name__ == "__main__":
    main()
