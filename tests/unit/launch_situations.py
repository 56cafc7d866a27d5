"""Launches for tests: a whole one for each platform, from which pieces are taken away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tao_sdk import settings
from tao_sdk.launch import LaunchPlan
from tao_sdk.preflight.checks import Check
from tao_sdk.preflight.engine import PreflightReport
from tao_sdk.skills import SkillBank
from tao_sdk.skills.layout import PACKAGED_BANK

TRAIN_KEYS = ("custom.train_dataset.annotation_path", "custom.train_dataset.media_path")
EVAL_KEYS = ("custom.val_dataset.annotation_path", "custom.val_dataset.media_path")
KEYS = (*TRAIN_KEYS, *EVAL_KEYS)
IMAGE = "nvcr.io/nvidia/tao/tao-toolkit:7.0.1-cosmos-rl"
COSMOS = "tao-finetune-cosmos-reason"
BANK = SkillBank(PACKAGED_BANK)
"""Read once; nothing changes it."""
S3 = ("ACCESS_KEY", "SECRET_KEY")


@dataclass(frozen=True)
class Place:
    """A platform as a person knows it."""

    folder: str
    credentials: tuple[str, ...] = ()
    """What is asked for there, in this order, for data below `folder`."""
    suggested_gpus: int = 1
    aliases: tuple[str, ...] = field(default=())


PLACES = {
    "local": Place("/data/tao/cosmos-rl", aliases=("process",)),
    "local-docker": Place("/data/tao/cosmos-rl", aliases=("docker", "Local-Docker ")),
    "remote-docker": Place("/data/tao/cosmos-rl", ("DOCKER_HOST",), aliases=("docker-remote",)),
    "slurm": Place(
        "/lustre/fsw/portfolios/<team>/<your-dir>/data/cosmos-rl",
        ("SSH_KEY_PATH", "SLURM_USER", "SLURM_HOSTNAME", "SLURM_PARTITION"),
        suggested_gpus=4,
        aliases=("cluster",),
    ),
    "kubernetes": Place("s3://my-bucket/tao/cosmos-rl", S3, aliases=("k8s", "local-k8s")),
    "brev": Place("s3://my-bucket/tao", S3),
    "lepton": Place(
        "s3://my-bucket/cosmos_rl",
        ("LEPTON_WORKSPACE_ID", "LEPTON_AUTH_TOKEN", *S3),
        aliases=("dgx-cloud",),
    ),
}


def forget_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which nothing is set."""
    others = ("SSH_AUTH_SOCK", "LEPTON_WORKSPACE_ID", "LEPTON_AUTH_TOKEN", "BREV_API_TOKEN")
    for name in others:
        monkeypatch.delenv(name, raising=False)
    for setting in settings.SETTINGS.values():
        for name in (setting.name, *setting.aliases):
            monkeypatch.delenv(name, raising=False)


def set_credentials(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setenv(name, f"the-value-of-{name}")


def whole(platform: str, mode: str = "root", /, **changes: Any) -> LaunchPlan:
    """A launch of Cosmos-RL in which everything is decided."""
    folder = PLACES[platform].folder
    data: dict[str, Any]
    if mode == "root":
        data = {"train_root": f"{folder}/train", "eval_root": f"{folder}/eval"}
    else:
        data = {"specs": {key: f"{folder}/own/{key.rpartition('.')[2]}" for key in KEYS}}
    decided = {
        "platform": platform,
        **data,
        "image_confirmed": True,
        "gpus": 2,
        "nodes": 1,
        "monitor": True,
        "status_interval_minutes": 5,
        "automl": "off",
        "bank": BANK,
    }
    return LaunchPlan(COSMOS, "train", **{**decided, **changes})


def report(*failed: str) -> PreflightReport:
    """A preflight in which these checks failed, and one passed."""
    passed = Check("something", "passed", "it is as it should be")
    return PreflightReport((passed, *(Check(name, "failed", f"{name} is bad") for name in failed)))


def preflight(*failed: str) -> Any:
    """A preflight that finds this, wherever it is asked."""
    return lambda request, bank, on_check=None: report(*failed)
