"""From a model of the bank to a job of a played workspace."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from lepton_lab import LeptonLab

from lab.lepton import LeptonServer
from tao_sdk.launch import GateClosedError, LaunchPlan, launch

pytest.importorskip("numpy")
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PLAN = LaunchPlan(
    "tiny-trainer",
    "train",
    platform="lepton",
    automl="off",
    image_confirmed=True,
    gpus=1,
    specs={"num_epochs": 1, "dataset.num_samples": 300, "dataset.image_size": 8},
)


def test_a_place_that_is_not_there_closes_the_gate(lab: LeptonLab, server: LeptonServer) -> None:
    for change, told in (
        ({"gpus": 16}, "no shape of this workspace has 16 GPUs"),
        ({"options": {"dedicated_node_group": "none-such"}}, "there is: main, full"),
    ):
        with pytest.raises(GateClosedError) as error:
            launch(PLAN.set(**change), state_file=lab.state_file)
        [condition] = error.value.gate.closed()
        assert condition.id == "access"
        assert told in condition.reason
    assert not [call for call in server.calls() if not call.startswith("GET ")]
    assert not lab.state_file.exists()


@pytest.mark.timeout(120)
def test_a_model_is_trained(lab: LeptonLab, server: LeptonServer) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PYTHONPATH": str(EXAMPLES), "PATH": path}
    plan = PLAN.set(env_vars=env, options={"dedicated_node_group": "main"})
    job = launch(plan, state_file=lab.state_file)
    assert job.wait(timeout=100).status == "Complete", "\n".join(job.logs())
    sent = server.job_of(job.id)
    assert sent.spec["resource_shape"] == "gpu.h100-sxm"
    assert sent.labels["tao-sdk-action"] == "train"
    assert not any(value in json.dumps(sent.body) for value in env.values())
