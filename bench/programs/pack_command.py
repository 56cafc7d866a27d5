"""`pack_command.py KIND`: build a job's command, with the `tao_sdk` that this interpreter has."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tao_sdk.script_runner import build_entrypoint

# A training job as the skills describe them: data in a bucket, results to a bucket.
SPEC: dict[str, Any] = {
    "encryption_key": "",
    "results_dir": "",
    "wandb": {"enable": False, "project": "detection", "tags": ["baseline", "fp16"]},
    "dataset": {
        "train_data_sources": [
            {"image_dir": "s3://data/coco/train/", "json_file": "s3://data/coco/train.json"}
        ],
        "val_data_sources": [
            {"image_dir": "s3://data/coco/val/", "json_file": "s3://data/coco/val.json"}
        ],
        "num_classes": 91,
        "batch_size": 4,
        "workers": 8,
        "augmentation": {"scales": [480, 512, 544, 576, 608], "fixed_padding": True},
    },
    "model": {
        "backbone": "fan_tiny",
        "pretrained_backbone_path": "s3://models/fan_tiny.pth",
        "num_feature_levels": 4,
        "dec_layers": 6,
        "enc_layers": 6,
        "num_queries": 300,
        "dropout_ratio": 0.3,
    },
    "train": {
        "num_gpus": 1,
        "num_epochs": 12,
        "checkpoint_interval": 1,
        "validation_interval": 1,
        "precision": "fp16",
        "optim": {"lr": 0.0002, "lr_backbone": 2e-05, "lr_steps": [11], "weight_decay": 0.0001},
        "resume_training_checkpoint_path": "",
    },
}
JOBS: dict[str, dict[str, Any]] = {
    "config": {
        "command": "train -e {config_path}",
        "specs": SPEC,
        "config_format": "yaml",
        "inputs": {
            "dataset.train_data_sources[0].image_dir": {"type": "folder"},
            "dataset.train_data_sources[0].json_file": {"type": "file"},
            "dataset.val_data_sources[0].image_dir": {"type": "folder"},
            "dataset.val_data_sources[0].json_file": {"type": "file"},
            "model.pretrained_backbone_path": {"type": "file"},
        },
        "outputs": {"results_dir": {"type": "folder"}},
    },
    "passthrough": {"command": "nvidia-smi"},
    "clock": {"command": "date +%s.%N"},
}


def main(kind: str) -> None:
    began = time.perf_counter()
    command = build_entrypoint(**JOBS[kind])["command"]
    first = time.perf_counter()
    build_entrypoint(**JOBS[kind])
    again = time.perf_counter()
    print(json.dumps({"command": command, "first": first - began, "again": again - first}))


if __name__ == "__main__":
    main(sys.argv[1])
