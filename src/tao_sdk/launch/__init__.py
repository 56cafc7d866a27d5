"""Launching a model's action: what to ask, what must hold, and the way to a job.

    from tao_sdk.launch import LaunchPlan, launch

    plan = LaunchPlan("dino", "train", platform="slurm", train_root="/lustre/you/coco/train")
    print(plan.prompt())            # what is still missing, with examples
    plan = plan.set(eval_root="/lustre/you/coco/val", image_confirmed=True, gpus=8)
    job = launch(plan)              # raises GateClosedError, with nothing created, while it is not

Until all seven conditions of the gate hold, nothing is written, pulled, installed or submitted.
"""

from __future__ import annotations

from tao_sdk.launch.gate import Condition, Gate, GateClosedError, examine, inputs_gate
from tao_sdk.launch.launching import launch, prepare, submit
from tao_sdk.launch.monitoring import reports, status_command
from tao_sdk.launch.plan import LaunchPlan
from tao_sdk.launch.questions import Question

__all__ = [
    "Condition",
    "Gate",
    "GateClosedError",
    "LaunchPlan",
    "Question",
    "examine",
    "inputs_gate",
    "launch",
    "prepare",
    "reports",
    "status_command",
    "submit",
]
