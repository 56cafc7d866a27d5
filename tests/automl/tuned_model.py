"""A skill bank with one model whose training takes a moment: a script that prints its loss."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

MODEL = "tao-train-mini"
TRAINING = """
import json, math, os, sys, time
spec = json.load(open(sys.argv[sys.argv.index("-e") + 1]))
train = spec["train"]
if train["lr"] > train["diverges_above"]:
    print("Epoch 1/1: val_loss: nan")
    sys.exit(0)
if train["lr"] > train["fails_above"]:
    sys.exit("ValueError: this learning rate is not for me")
wait = os.environ.get("MINI_WAIT")
while wait and not os.path.exists(wait):
    time.sleep(0.02)
loss = (math.log10(train["lr"]) + 3) ** 2
print("Epoch 1/1: train_loss: 9.0")
print(f"Validation loss: {loss:.6f}", flush=True)
"""


def write_bank(folder: Path) -> Path:
    """Write the bank; returns the folder of its model."""
    model = folder / "skills" / "models" / MODEL
    (model / "references").mkdir(parents=True)
    (model / "schemas").mkdir()
    script = folder / "training.py"
    script.write_text(TRAINING)
    spec = {
        "results_dir": "",
        "train": {"lr": 1e-5, "num_epochs": 1, "fails_above": 100.0, "diverges_above": 100.0},
    }
    leaves: dict[str, Any] = {
        "lr": {"type": "float", "default": 1e-5, "minimum": 0.0, "automl_enabled": True},
        "num_epochs": {"type": "int", "default": 1, "minimum": 1, "automl_enabled": True},
        "fails_above": {"type": "float", "default": 100.0},
        "diverges_above": {"type": "float", "default": 100.0},
    }
    info = {
        "name": MODEL,
        "network_arch": "mini",
        "automl_enabled": True,
        "container_image": "registry/mini:1",
        "actions": {
            "train": {
                "command": f"{sys.executable} {script} -e {{config_path}}",
                "mode": "config",
                "config_format": "json",
                "inputs": {},
                "outputs": {"results_dir": {"type": "folder"}},
            }
        },
    }
    (model / "SKILL.md").write_text(f"---\nname: {MODEL}\ndescription: tests\n---\n")
    (model / "references" / "skill_info.yaml").write_text(yaml.safe_dump(info))
    (model / "references" / "spec_template_train.yaml").write_text(yaml.safe_dump(spec))
    schema = {
        "type": "object",
        "properties": {
            "results_dir": {"type": "string", "default": ""},
            "train": {"type": "object", "properties": leaves},
        },
    }
    (model / "schemas" / "train.schema.json").write_text(json.dumps(schema))
    return model
