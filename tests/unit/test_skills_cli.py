"""`tao-sdk bank`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from skill_banks import TINY, Bank, put_yaml

from tao_sdk.cli import main
from tao_sdk.skills.layout import PACKAGED_BANK


class Cli:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.said = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        ended = main(["bank", *words])
        out, self.said = self._capsys.readouterr()
        assert ended == code, self.said
        return out

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.delenv("TAO_SKILL_BANK_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Cli(capsys)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    bank = Bank(tmp_path / "bank")
    monkeypatch.setenv("TAO_SKILL_BANK_PATH", str(bank.root))
    return bank


def test_path(cli: Cli, tmp_path: Path) -> None:
    assert cli("path") == f"{PACKAGED_BANK}\n"
    old = Bank(tmp_path / "old", "old").root
    found = cli.json("path", "--bank", str(old))
    assert (found["kind"], found["path"], found["layout"]) == ("bank", str(old), "old")


def test_install(cli: Cli, tmp_path: Path) -> None:
    home = tmp_path / "home" / "tao-skills-external"
    assert cli("install") == f"{home}\n"
    assert cli("path") == f"{home}\n"
    assert cli("check") == ""
    script = home / "scripts" / "list_tao_models.py"
    assert os.access(script, os.X_OK)
    assert not list(home.rglob("__pycache__"))
    assert cli.json("install", code=125)["message"].startswith(f"{home} exists already")
    other = tmp_path / "other"
    other.mkdir()
    assert cli("install", str(other)) == f"{other}\n"
    assert f"export TAO_SKILL_BANK_PATH={other}" in cli.said


def test_install_makes_scripts_runnable(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installers of wheels need not keep a file's mode."""
    from tao_sdk.skills import installation

    packed = tmp_path / "packed"
    shutil.copytree(PACKAGED_BANK, packed, ignore=shutil.ignore_patterns("__pycache__"))
    for path in packed.rglob("*.*"):
        if path.is_file():
            path.chmod(0o644)
    monkeypatch.setattr(installation, "PACKAGED_BANK", packed)
    made = tmp_path / "made"
    cli("install", str(made))
    runnable = {
        path.name for path in made.rglob("*") if path.is_file() and os.access(path, os.X_OK)
    }
    assert {"setup-nvidia-gpu-host.sh", "list_tao_models.py"} <= runnable
    assert not {"gpu-host-install.sh", "_sdk.py", "versions.yaml"} & runnable


def test_install_leaves_alone_what_is_there(cli: Cli, tmp_path: Path) -> None:
    """A folder beside it, a link that leads nowhere, a file where a parent must be."""
    beside = tmp_path / ".bank.part"
    beside.mkdir()
    (beside / "mine").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").write_text("x")
    before = sorted(tmp_path.iterdir())
    assert "exists already" in cli.json("install", str(tmp_path / "link"), code=125)["message"]
    refused = cli.json("install", str(tmp_path / "file" / "bank"), code=125)["message"]
    assert refused.startswith(f"{tmp_path}/file/bank cannot be made")
    assert sorted(tmp_path.iterdir()) == before
    cli("install", str(tmp_path / "bank"))
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "bank"])
    assert (beside / "mine").read_text() == "x"


def test_a_relative_path_is_told_whole(
    cli: Cli, made: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.root.parent)
    assert cli("path", "--bank", made.root.name) == f"{made.root}\n"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lists_fit_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from tao_sdk.cli.bank import _wrapped
    from tao_sdk.skills import SkillBank
    from tao_sdk.skills.listing import models_text

    monkeypatch.setenv("COLUMNS", str(width))
    text = models_text(SkillBank(PACKAGED_BANK))
    shown = _wrapped(text)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.split() == text.split()


@pytest.mark.parametrize("what", ["models", "platforms", "automl", "capabilities"])
def test_list(cli: Cli, made: Bank, what: str) -> None:
    assert cli("list", what).startswith(("Models:", "Platforms:", "Rule:", "Applications:"))
    document = cli.json("list", what)
    assert document["kind"] == f"bank-{what}"
    assert {"models": "models", "platforms": "platforms"}.get(what, "schema_version") in document


def test_list_means_models(cli: Cli, made: Bank) -> None:
    assert cli("list") == cli("list", "models")
    assert cli("list").splitlines()[1] == (
        f"- {TINY} (tiny_net): evaluate, gen_trt_engine, train; AutoML: yes"
    )


def test_show_a_model(cli: Cli, made: Bank) -> None:
    assert cli("show", "tiny").splitlines() == [
        f"{TINY} (tiny_net)",
        "",
        "train           registry/tao:1-pyt",
        "evaluate        registry/tao:1-pyt",
        "gen_trt_engine  registry/tao:1-deploy",
    ]
    assert cli.json("show", "tiny")["metadata"]["data_format"] == "coco"


def test_show_an_action(cli: Cli, made: Bank) -> None:
    shown = cli("show", "tiny", "train")
    facts, spec = shown.split("\nspec (yaml):\n\n")
    assert "image        registry/tao:1-pyt\n" in facts
    assert "to give      dataset.train_dir, dataset.labels\n" in facts
    assert yaml.safe_load(spec)["train"]["num_epochs"] == 10
    document = cli.json("show", "tiny", "evaluate", "--deploy")
    assert document["image"] == "registry/tao:1-deploy"
    assert document["missing"] == ["evaluate.trt_engine"]


def test_check(cli: Cli, made: Bank) -> None:
    assert [line for line in cli("check").splitlines() if line.startswith("problem")] == []
    del made.info["actions"]["train"]["mode"]
    made.write()
    file = f"skills/models/{TINY}/references/skill_info.yaml"
    told = "is missing: set it to config or args or passthrough"
    assert f"problem  {file}: actions.train.mode: {told}\n" in cli("check", code=1)
    assert "bank: 1 problem, 1 note" in cli.said
    document = cli.json("check", str(made.root), code=1)
    assert document["problems"] == 1
    assert document["findings"][0] == {
        "level": "problem",
        "file": file,
        "key": "actions.train.mode",
        "message": told,
    }


def test_complaints(cli: Cli, made: Bank, tmp_path: Path) -> None:
    cli("show", "tinny", code=2)
    assert "did you mean 'Tiny'" in cli.said
    cli("list", "everything", code=2)
    for words in (["check"], ["list", "--bank"], ["path", "--bank"]):
        cli(*words, str(tmp_path / "nowhere"), code=2)
        assert f"{tmp_path}/nowhere is not a folder" in cli.said
        assert "tao-sdk bank path shows the one that is used" in cli.said
    (tmp_path / "empty").mkdir()
    cli("list", "--bank", str(tmp_path / "empty"), code=2)
    assert "is not a skill bank" in cli.said
    put_yaml(made.model / "references" / "skill_info.yaml", [1])
    cli("show", TINY, code=125)
    assert "skill_info.yaml: expected a mapping, found list" in cli.said
