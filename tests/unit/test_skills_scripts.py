"""The helper programs: what they print, and how they fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from skill_banks import TINY, Bank

from lab import skill_bank
from tao_sdk.skills import scripts
from tao_sdk.skills.installation import install_bank

PROGRAMS = [
    "list_tao_platforms",
    "list_tao_models",
    "list_automl_support",
    "list_tao_capabilities",
    "resolve_tao_image",
    "resolve_versions_key",
]


class Script:
    """The programs, on one bank."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def run(self, program: str, *words: str) -> tuple[int, str, str]:
        function: Callable[..., int] = getattr(scripts, program)
        code = function([*words, "--skill-bank", str(self.root)])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def text(self, program: str, *words: str) -> str:
        code, out, err = self.run(program, *words)
        assert (code, err) == (0, "")
        return out

    def json(self, program: str, *words: str) -> Any:
        out = self.text(program, *words, "--format", "json")
        content = json.loads(out)
        assert out == json.dumps(content, indent=2, sort_keys=True) + "\n"
        return content

    def complaint(self, program: str, *words: str, code: int = 1) -> str:
        """One line on stderr, nothing on stdout."""
        ended, out, err = self.run(program, *words)
        assert (ended, out) == (code, "")
        assert err.count("\n") == 1
        assert err.startswith(f"{program}.py: ")
        return err


@pytest.fixture
def made(tmp_path: Path) -> Bank:
    return Bank(tmp_path / "bank")


@pytest.fixture
def script(made: Bank, capsys: pytest.CaptureFixture[str]) -> Script:
    return Script(made.root, capsys)


@pytest.fixture
def real(capsys: pytest.CaptureFixture[str]) -> Script:
    return Script(skill_bank(), capsys)


@pytest.mark.seed("000.5")
class TestPlatforms:
    def test_all_in_the_order_of_the_manifest(self, script: Script) -> None:
        assert script.text("list_tao_platforms").splitlines() == [
            "Platforms:",
            "- zed (Zed): Machines of Zed. Aliases: zed-cloud.",
            "- alpha: This machine.",
            "",
            "Monitoring defaults:",
            "- long_running_enabled: true",
            "- status_interval_minutes: 5",
        ]
        listed = script.json("list_tao_platforms")
        assert sorted(listed) == ["platforms", "prompt_defaults", "schema_version"]
        assert [record["name"] for record in listed["platforms"]] == ["zed", "alpha"]
        assert listed["platforms"] == script_manifest(script)["platforms"]
        assert listed["prompt_defaults"] == {
            "long_running_enabled": True,
            "status_interval_minutes": 5,
        }

    @pytest.mark.parametrize("name", ["zed", " ZED ", "Zed-Cloud"])
    def test_one_section_by_section(self, script: Script, name: str) -> None:
        assert script.text("list_tao_platforms", "--platform", name).splitlines() == [
            "Platform: zed (Zed)",
            "",
            "Required credentials:",
            "- ZED_TOKEN - Token of Zed. How to get it: Ask Zed.",
            "",
            "Required credential groups:",
            "- identity: AGENT preferred",
            "",
            "Optional credentials (do not ask for these at intake; only when their condition "
            "applies):",
            "- KEY_PATH (keys are used) - A key.",
            "",
            "Resource defaults:",
            "- num_gpus: 4",
            "- requeue: true",
            "",
            "Storage:",
            "- Protocol: aws",
            "- URI format: s3://{bucket}/{path}",
            "",
            "Dataset examples:",
            "- s3://bucket/train",
            "",
            "Preflight checks:",
            "- the token works",
        ]

    def test_what_is_not_there_is_empty(self, script: Script) -> None:
        assert script.json("list_tao_platforms", "--platform", "alpha") == {
            "platform": "alpha",
            "display_name": "alpha",
            "required_credentials": [],
            "credential_groups": [],
            "optional_credentials": [],
            "resource_defaults": {},
            "storage": {},
            "dataset_examples": [],
            "preflight_checks": [],
        }
        assert script.text("list_tao_platforms", "--platform", "alpha").splitlines()[2:4] == [
            "Required credentials:",
            "- None",
        ]

    def test_what_a_record_says_itself_wins(self, made: Bank, script: Script) -> None:
        [token] = made.platform_manifest["platforms"][0]["required_credentials"]
        token["description"] = "Its own."
        made.write()
        [found] = script.json("list_tao_platforms", "--platform", "zed")["required_credentials"]
        assert (found["description"], found["how_to_get"]) == ("Its own.", "Ask Zed.")

    def test_an_unknown_one_names_those_that_there_are(self, script: Script) -> None:
        complaint = script.complaint("list_tao_platforms", "--platform", "zedd")
        assert "no platform 'zedd'" in complaint
        assert complaint.endswith("supported: zed, alpha\n")

    def test_only_the_manifest_counts(self, made: Bank, script: Script) -> None:
        (made.platforms / "tao-run-on-mars").mkdir()
        assert "mars" not in script.text("list_tao_platforms")
        (made.platforms / "platforms.manifest.json").unlink()
        assert "platforms.manifest.json does not exist" in script.complaint("list_tao_platforms")

    def test_the_real_ones(self, real: Script) -> None:
        names = [record["name"] for record in real.json("list_tao_platforms")["platforms"]]
        assert names == ["lepton", "brev", "slurm", "local-docker", "kubernetes"]
        slurm = real.text("list_tao_platforms", "--platform", "cluster")
        headings = [line for line in slurm.splitlines() if line.endswith(":") and line[0] != "-"]
        assert [heading.split(" (")[0].rstrip(":") for heading in headings] == [
            "Required credentials",
            "Required credential groups",
            "Optional credentials",
            "Resource defaults",
            "Storage",
            "Dataset examples",
            "Preflight checks",
        ]
        assert "- ssh_identity: SSH_KEY_PATH preferred" in slurm
        assert "#SBATCH --account" in slurm


def script_manifest(script: Script) -> Any:
    return json.loads((script.root / "skills/platform/platforms.manifest.json").read_text())


@pytest.mark.seed("000.8")
class TestModels:
    def test_a_record(self, script: Script) -> None:
        listed = script.json("list_tao_models")
        assert listed["schema_version"] == 1
        assert listed["models"] == [
            {
                "model": TINY,
                "network_arch": "tiny_net",
                "actions": ["evaluate", "gen_trt_engine", "train"],
                "failures": {},
                "automl_enabled": True,
                "automl_blocked_reason": "",
                "has_train_schema": True,
                "train_schema": f"models/{TINY}/schemas/train.schema.json",
                "train_schema_status": "schemas/train.schema.json is packaged and valid",
            }
        ]

    def test_what_automl_can_tune(self, script: Script) -> None:
        support = script.json("list_tao_models", "--scope", "automl")
        assert support == script.json("list_automl_support")
        assert len(support["source"]) == 3
        assert support["unsupported"] == []
        assert support["supported"] == [
            {
                "model": TINY,
                "network_arch": "tiny_net",
                "automl_enabled": True,
                "train_schema": "schemas/train.schema.json",
                "train_schema_status": "schemas/train.schema.json is packaged and valid",
                "train_spec_template": "references/spec_template_train.yaml",
                "actions": ["evaluate", "gen_trt_engine", "train"],
                "automl_default_parameters": ["train.lr"],
            }
        ]

    def test_why_not(self, made: Bank, script: Script) -> None:
        """Turned off comes before blocked, blocked before a schema that is not there."""
        made.add_model("b-off", automl_enabled="off", automl_blocked_reason="too large")
        made.add_model("c-blocked", automl_blocked_reason="too large")
        made.add_model("d-none")
        for name, text in (("e-broken", "{"), ("f-list", "[1]")):
            schema = made.add_model(name) / "schemas" / "train.schema.json"
            schema.parent.mkdir()
            schema.write_text(text)
        support = script.json("list_automl_support")
        assert [entry["model"] for entry in support["supported"]] == [TINY]
        reasons = {entry["model"]: entry["reason"] for entry in support["unsupported"]}
        assert "automl_enabled is false" in reasons["b-off"]
        assert reasons["c-blocked"] == "too large"
        assert reasons["d-none"] == "schemas/train.schema.json is not packaged"
        assert reasons["e-broken"].startswith("schemas/train.schema.json is invalid JSON: ")
        assert reasons["f-list"].startswith("schemas/train.schema.json is invalid JSON: ")
        assert "- b-off (tiny_net): automl_enabled" in script.text("list_automl_support")

    def test_folders_and_manifest_together(self, made: Bank, script: Script) -> None:
        made.add_model("only-a-folder", network_arch="other", automl_enabled=None)
        manifest = json.loads((made.models / "schemas.manifest.json").read_text())
        manifest["models"]["only-listed"] = {"actions": ["train"], "automl_enabled": "no"}
        (made.models / "schemas.manifest.json").write_text(json.dumps(manifest))
        found = {entry["model"]: entry for entry in script.json("list_tao_models")["models"]}
        assert list(found) == ["only-a-folder", "only-listed", TINY]
        assert found["only-a-folder"]["actions"] == ["evaluate", "train"]
        assert found["only-a-folder"]["automl_enabled"] is True
        assert found["only-listed"]["network_arch"] == "only-listed"
        assert found["only-listed"]["automl_enabled"] is False

    def test_without_the_manifest_it_fails(self, made: Bank, script: Script) -> None:
        (made.models / "schemas.manifest.json").unlink()
        assert "schemas.manifest.json does not exist" in script.complaint("list_tao_models")

    def test_the_real_ones(self, real: Script) -> None:
        support = real.json("list_tao_models", "--scope", "automl")
        assert len(support["supported"]) == 12
        assert support["unsupported"] == []
        by_arch = {entry["network_arch"]: entry for entry in support["supported"]}
        assert "train.optim.lr" in by_arch["dino"]["automl_default_parameters"]
        assert "gen_trt_engine" in by_arch["dino"]["actions"]

    def test_capabilities(self, real: Script) -> None:
        found = real.json("list_tao_capabilities")
        assert sorted(found) == [
            "applications",
            "automl",
            "data_workflows",
            "model_workflows",
            "platforms",
            "schema_version",
        ]
        assert sorted(found["platforms"]) == ["prompt_defaults", "source", "supported"]
        models = found["model_workflows"]
        assert len(models["training_capable_models"]) == 12
        full = set(models["full_train_eval_infer_export_trt_models"])
        assert "tao-train-dino" in full
        assert "tao-finetune-cosmos-reason" not in full
        assert [skill["name"] for skill in found["applications"]] == [
            "tao-run-automl",
            "tao-run-inference-service",
            "tao-train-single-step",
        ]
        assert real.text("list_tao_capabilities").startswith("Applications:\n- tao-run-automl: ")


@pytest.mark.seed("000.7", "001.5")
class TestImages:
    def test_text(self, made: Bank, script: Script) -> None:
        path = made.model / "references" / "skill_info.yaml"
        assert script.text("resolve_tao_image", "--model", "TINY").splitlines() == [
            "- Requested model: TINY",
            f"- Model: {TINY} (tiny_net)",
            "- Action: train",
            "- Default image: registry/tao:1-pyt",
            "- Declared image: tao_toolkit.pyt",
            f"- Source: model.container_image in {path}",
            "- Resolved from: versions.yaml",
            "- Confirm this image, or pass image=<override>.",
        ]

    def test_json(self, made: Bank, script: Script) -> None:
        words = ("--network", "tiny", "--action", "gen_trt_engine")
        assert script.json("resolve_tao_image", *words) == {
            "schema_version": 2,
            "requested_model": "tiny",
            "model": TINY,
            "network_arch": "tiny_net",
            "action": "gen_trt_engine",
            "image": "registry/tao:1-deploy",
            "declared_image": "tao_toolkit.deploy",
            "resolved_from": "versions.yaml",
            "source": "model.container_image",
            "metadata_path": str(made.model / "references" / "tao-deploy-tiny.skill_info.yaml"),
            "confirmation_required": True,
            "override_key": "image",
        }

    def test_complaints(self, made: Bank, script: Script) -> None:
        made.add_model("other")
        made.add_model("lost", network_arch="lost_net", container_image="tao_toolkit.gone")
        assert "no model 'tiney'" in script.complaint("resolve_tao_image", "--model", "tiney")
        several = script.complaint("resolve_tao_image", "--model", "tiny_net")
        assert "several models" in several
        assert "other" in several
        action = script.complaint("resolve_tao_image", "--model", TINY, "--action", "fly")
        assert "no action 'fly'" in action
        assert "evaluate" in action
        lost = script.complaint("resolve_tao_image", "--model", "lost")
        assert "'tao_toolkit.gone'" in lost

    def test_every_action_of_every_real_model(self, real: Script) -> None:
        for model in real.json("list_tao_models")["models"]:
            for action in model["actions"]:
                words = ("--model", model["network_arch"], "--action", action)
                found = real.json("resolve_tao_image", *words)
                assert found["model"] == model["model"]
                assert found["image"].startswith("nvcr.io/nvidia/tao/tao-toolkit:")


class TestVersionsKey:
    def test_only_the_value_is_printed(self, script: Script) -> None:
        assert script.text("resolve_versions_key", "wheels.sdk") == "sdk[zed]==1.0\n"
        image = script.text("resolve_versions_key", "images.tao_toolkit.pyt")
        assert image == "registry/tao:1-pyt\n"

    @pytest.mark.parametrize(
        ("key", "told"),
        [
            ("wheels.sdkk", "did you mean 'sdk'"),
            ("images.tao_toolkit", "is a group"),
            ("tao_toolkit.pyt", "write images.<key> or wheels.<key>"),
            ("wheels", "wheels key ''"),
        ],
    )
    def test_a_key_that_is_no_version(self, script: Script, key: str, told: str) -> None:
        assert told in script.complaint("resolve_versions_key", key)

    def test_no_versions_yaml(self, made: Bank, script: Script) -> None:
        (made.root / "versions.yaml").unlink()
        assert "versions.yaml" in script.complaint("resolve_versions_key", "wheels.sdk", code=2)


@pytest.mark.parametrize("program", PROGRAMS)
class TestEveryProgram:
    def words(self, program: str) -> list[str]:
        more = {"resolve_tao_image": ["--model", "x"], "resolve_versions_key": ["wheels.x"]}
        return more.get(program, [])

    def test_a_bad_bank_is_one_line(
        self, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = 2 if program == "resolve_versions_key" else 1
        missing = Script(tmp_path / "nowhere", capsys)
        assert "is not a folder" in missing.complaint(program, *self.words(program), code=code)
        empty = Script(tmp_path, capsys)
        empty.complaint(program, *self.words(program), code=code)

    def test_usage(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as wrong:
            getattr(scripts, program)(["--no-such-option"])
        assert wrong.value.code == 2
        assert capsys.readouterr().err.startswith("usage: ")

    @pytest.mark.seed("000.5", "000.7", "000.8")
    def test_the_packaged_file_runs_by_itself(self, program: str, tmp_path: Path) -> None:
        """As installed: found by its path alone, with the bank that it is in."""
        root = install_bank(tmp_path / "bank")
        words = {"resolve_tao_image": ["--model", "dino"]}.get(program, [])
        words = ["wheels.tao_sdk"] if program == "resolve_versions_key" else words
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(Path(scripts.__file__).parents[2]),
        }
        path = root / "scripts" / f"{program}.py"
        assert path.read_text().startswith(f"#!{sys.executable}\n")
        ended = subprocess.run(
            [path, *words], capture_output=True, text=True, env=environment, timeout=60
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.strip()
