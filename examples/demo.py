"""The demo, in four acts on the local platform: train, evaluate, break and explain, resume.

Everything it makes is below `.demo/` in the current folder. Run by `make demo`.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
import time
from pathlib import Path

from tao_sdk import Job, LocalSDK
from tao_sdk.progress import ProgressReader, render_bar

TRAINER = Path(__file__).parent / "tiny_trainer"
WORK = Path(".demo").absolute()
LIVE = sys.stdout.isatty()


def main() -> None:
    sdk = LocalSDK(state_file=WORK / "state.json", work_dir=WORK / "jobs")
    checkpoint = train(sdk)
    evaluate(sdk, checkpoint)
    break_and_explain(sdk)
    resume(sdk)
    print(f"\nEverything is below {WORK}. Look around:")
    print(f"  {sys.prefix}/bin/tao-sdk --state {WORK / 'state.json'} ls")


def train(sdk: LocalSDK) -> str:
    act(1, "Train a small network, with its progress read from the log")
    job = start(sdk, "train", "train.epoch_seconds=0.6")
    must_complete(job, follow(job))
    checkpoints = sdk.get_checkpoints(job.id)
    say(f"{len(checkpoints)} checkpoints, the last is {Path(checkpoints[-1]).name}")
    return checkpoints[-1]


def evaluate(sdk: LocalSDK, checkpoint: str) -> None:
    act(2, "Evaluate its last checkpoint")
    job = start(sdk, "evaluate", f"evaluate.checkpoint={checkpoint}")
    must_complete(job, follow(job))
    say(next(line for line in job.logs() if line.startswith("Evaluation")))


def break_and_explain(sdk: LocalSDK) -> None:
    act(3, "Break a run on purpose, and ask why")
    job = start(sdk, "train", "train.fail_at_epoch=2", "train.fail_with=oom")
    status = follow(job)
    reason = job.explain()
    if status != "Error" or reason is None:
        sys.exit(f"the run should have failed, but it is {status}")
    say(f"cause       {reason['cause']} [{reason['err_class']}]")
    say(f"suggestion  {reason['suggestion']}")


def resume(sdk: LocalSDK) -> None:
    act(4, "Stop a run half-way, and go on from where it was")
    stopped = start(sdk, "train", "train.epoch_seconds=0.6")
    for line in stopped.logs(follow=True):
        if line.startswith("Epoch 2/"):
            break
    stopped.cancel()
    saved = sdk.get_checkpoints(stopped.id)[-1]
    say(f"{stopped.status} during epoch 3; it saved {Path(saved).name}")
    job = start(sdk, "train", f"train.resume_training_checkpoint_path={saved}")
    must_complete(job, follow(job))


def act(number: int, title: str) -> None:
    print(f"\n{number}. {title}")


def say(text: str) -> None:
    print(textwrap.fill(text, 78, initial_indent="   ", subsequent_indent=" " * 15))


def start(sdk: LocalSDK, action: str, *settings: str) -> Job:
    """One action of the demo trainer as a job."""
    spec = TRAINER / "specs" / f"{action}.yaml"
    job = sdk.create_job(
        command=shlex.join([sys.executable, str(TRAINER), action, "-e", str(spec), *settings]),
        gpu_count=0,
        network_arch="tiny",
        action=action,
    )
    say(f"job {job.id}")
    return job


def follow(job: Job) -> str:
    """Show a job's progress until it has ended; returns its state."""
    reader = ProgressReader()
    shown = ""
    for line in job.logs(follow=True):
        reader.feed(line, at=time.time())
        summary = reader.progress.summary()
        if not summary or summary == shown:
            continue
        shown = summary
        text = f"   {render_bar(reader.progress, 24)}  {summary}"
        if LIVE:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{text[:width]:<{width}}", end="", flush=True)
        else:
            print(text)
    if LIVE and shown:
        print()
    status = job.wait()
    say(f"{status.status}: {status.message}")
    return status.status


def must_complete(job: Job, status: str) -> None:
    """Leave with the job's own exit code if it failed."""
    if status == "Complete":
        return
    reason = job.explain() or {}
    print(f"{reason.get('cause')}\n{reason.get('suggestion')}", file=sys.stderr)
    sys.exit(int(reason.get("exit_code") or 1))


if __name__ == "__main__":
    main()
