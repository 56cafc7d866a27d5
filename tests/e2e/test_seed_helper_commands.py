"""The helper commands of the seed documents, as they stand there, after `tao-sdk bank install`.

They run in a shell that knows nothing of a virtual environment: the scripts find the SDK by the
interpreter that installed them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from seed_shell import BANK, Shell

import tao_sdk

PLATFORMS = f"""\
{BANK}/scripts/list_tao_platforms.py \\
  --skill-bank {BANK} --format text
"""
PLATFORM = f"""\
{BANK}/scripts/list_tao_platforms.py \\
  --skill-bank {BANK} \\
  --platform %s --format text
"""
IMAGE = f"""\
{BANK}/scripts/resolve_tao_image.py \\
  --skill-bank {BANK} \\
  --model %s --action %s --format text
"""
AUTOML = f"""\
{BANK}/scripts/list_tao_models.py \\
  --skill-bank {BANK} \\
  --scope automl --format json
"""
PIN = """\
PIN=$("${TAO_SKILL_BANK_PATH:?}/scripts/resolve_versions_key.py" wheels.tao_sdk_%s)
echo "$PIN"
"""


@pytest.fixture(
    params=[("sh", False), ("bash", True)], ids=["sh, usual place", "bash, place exported"]
)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    program, exported = request.param
    return Shell(tmp_path, program, exported=exported)


@pytest.mark.seed("000.5")
def test_platforms_are_listed(shell: Shell) -> None:
    said = shell.run(PLATFORMS)
    names = [line.split()[1] for line in said.splitlines() if line.startswith("- ")]
    assert names[:7] == [
        "local",
        "local-docker",
        "remote-docker",
        "slurm",
        "kubernetes",
        "brev",
        "lepton",
    ]
    assert "- long_running_enabled: true" in said
    assert "- status_interval_minutes: 5" in said


@pytest.mark.seed("000.5")
def test_a_platform_lists_its_own_credentials_and_no_others(shell: Shell) -> None:
    said = shell.run(PLATFORM % "slurm")
    for name in ("SLURM_USER", "SLURM_HOSTNAME", "SLURM_PARTITION", "SSH_KEY_PATH preferred"):
        assert name in said
    assert "How to get it:" in said
    assert "BREV" not in said
    assert "LEPTON" not in said
    assert "- time_hours: 4\n- timeout_hours: 3.8\n" in said
    docker = shell.run(PLATFORM % "docker")
    assert docker.startswith("Platform: local-docker")
    assert "Required credentials:\n- None\n" in docker
    assert "SLURM" not in docker


@pytest.mark.seed("000.5")
def test_an_unknown_platform_is_answered_with_the_known(shell: Shell) -> None:
    complaint = shell.run(PLATFORM % "mainframe", code=1)
    assert complaint.count("\n") == 1
    assert "kubernetes" in complaint


@pytest.mark.seed("000.7", "001.5")
@pytest.mark.parametrize(
    ("model", "action", "image"),
    [
        ("dino", "train", "7.0.1-pyt"),
        ("tao-train-dino", "gen_trt_engine", "7.0.1-deploy"),
        ("cosmos-rl", "evaluate", "7.0.1-cosmos-rl"),
    ],
)
def test_an_image_is_resolved(shell: Shell, model: str, action: str, image: str) -> None:
    said = shell.run(IMAGE % (model, action))
    assert f"- Default image: nvcr.io/nvidia/tao/tao-toolkit:{image}\n" in said
    assert "image=<override>" in said


@pytest.mark.seed("000.8")
def test_models_for_automl_are_listed(shell: Shell) -> None:
    listed = json.loads(shell.run(AUTOML))
    dino = next(model for model in listed["supported"] if model["network_arch"] == "dino")
    assert dino["automl_enabled"] is True
    assert "train.optim.lr" in dino["automl_default_parameters"]


@pytest.mark.parametrize("platform", ["slurm", "kubernetes", "docker"])
def test_a_pin_is_resolved(tmp_path: Path, platform: str) -> None:
    shell = Shell(tmp_path, "bash", exported=True)
    assert shell.run(PIN % platform) == f"tao-sdk[{platform}]=={tao_sdk.__version__}\n"


@pytest.mark.seed("001.5")
def test_without_the_helper_the_metadata_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch document's second way: `SkillBank().get_model_config(network_arch)`."""
    shell = Shell(tmp_path, "sh", exported=True)
    monkeypatch.setenv("TAO_SKILL_BANK_PATH", shell.environment["TAO_SKILL_BANK_PATH"])
    from tao_sdk.skills import SkillBank
    from tao_sdk.versions import resolve_container_image

    config = SkillBank().get_model_config("classification_pyt")
    assert config["actions"]["gen_trt_engine"]["container_image"] == "tao_toolkit.deploy"
    assert config["actions"]["train"].get("container_image") is None
    image = resolve_container_image(config["container_image"])
    assert image == "nvcr.io/nvidia/tao/tao-toolkit:7.0.1-pyt"
