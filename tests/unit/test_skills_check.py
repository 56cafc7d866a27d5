"""`check_bank` names every flaw with its file and key, and no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from skill_banks import TINY, Bank, put_json, put_yaml

from lab import skill_bank
from tao_sdk.skills import BankNotFoundError
from tao_sdk.skills.checking import NOTE, PROBLEM, Finding, check_bank
from tao_sdk.skills.layout import PACKAGED_BANK

MODELS = "skills/models"
DINO = f"{MODELS}/tao-train-dino"
INFO = f"{DINO}/references/skill_info.yaml"
SIDECAR = f"{DINO}/references/tao-deploy-dino.skill_info.yaml"
TRAIN_SCHEMA = f"{DINO}/schemas/train.schema.json"
CLIP = f"{MODELS}/tao-finetune-clip/references/skill_info.yaml"
COSMOS = f"{MODELS}/tao-finetune-cosmos-reason/references/skill_info.yaml"
PLATFORMS = "skills/platform/platforms.manifest.json"
TOOL = "skills/data/tao-analyze-gaps-vlm-bcq/references/skill_info.yaml"
MANIFEST = f"{MODELS}/schemas.manifest.json"
SLURM = "skills/platform/tao-run-on-slurm/references/skill_info.yaml"


def places(findings: list[Finding], level: str) -> list[tuple[str, str]]:
    return [(finding.file, finding.key) for finding in findings if finding.level == level]


class TestSoundBanks:
    def test_the_packaged_one(self) -> None:
        assert check_bank(PACKAGED_BANK) == []

    @pytest.mark.parametrize("layout", ["nested", "flat", "old"])
    def test_small_ones(self, tmp_path: Path, layout: str) -> None:
        made = Bank(tmp_path, layout)
        made.platform_manifest["platforms"][0]["credential_groups"][0]["preferred"] = "KEY_PATH"
        made.write()
        findings = check_bank(made.root)
        assert places(findings, PROBLEM) == []
        assert [finding.message.partition(",")[0] for finding in findings] == [
            "1 JSON files have Infinity for a number"
        ]

    def test_no_bank(self, tmp_path: Path) -> None:
        with pytest.raises(BankNotFoundError):
            check_bank(tmp_path)


# The flaws of the real data, as known. Notes are told by file and key; the text says the rest.
KNOWN_PROBLEMS = [(SLURM, "optional_credentials[1].only_when")]
KNOWN_NOTES = {
    (CLIP, "actions.gen_trt_engine.inputs.gen_trt_engine.trt_engine"),
    (CLIP, "actions.inference"),
    (CLIP, "actions.gen_trt_engine"),
    (
        f"{MODELS}/tao-finetune-clip/references/tao-deploy-clip.skill_info.yaml",
        "actions.gen_trt_engine.inputs.gen_trt_engine.trt_engine",
    ),
    (
        f"{MODELS}/tao-train-visual-changenet/references/"
        "tao-deploy-visual-changenet.skill_info.yaml",
        "actions.gen_trt_engine.inputs.gen_trt_engine.trt_engine",
    ),
    ("skills/platform/tao-run-on-kubernetes/config.json", "optional_credentials"),
    ("skills/platform/tao-run-on-kubernetes/config.json", "resource_defaults"),
    (
        "skills/data/tao-generate-image-grounding/references/skill_info.yaml",
        "actions.generate.command",
    ),
    *(
        ("skills/applications/tao-run-automl/references/skill_info.yaml", f"actions.{name}")
        for name in ("run", "status", "resume")
    ),
    *(
        (MANIFEST, f"models.{name}.actions")
        for name in (
            "tao-finetune-clip",
            "tao-finetune-cosmos-reason",
            "tao-train-visual-changenet",
        )
    ),
    *(
        (f"{MODELS}/automl_support.json", f"supported[{index}].automl_default_parameters")
        for index in (0, 1)
    ),
    *(
        (f"{MODELS}/tao-train-{name}/schemas/{first}.schema.json", "required")
        for name, first in (
            ("depth-anything-v2", "evaluate"),
            ("dino", "distill"),
            ("grounding-dino", "evaluate"),
            ("image-classification", "distill"),
            ("mask2former", "evaluate"),
            ("ocrnet", "dataset_convert"),
            ("rtdetr", "distill"),
            ("segformer", "evaluate"),
            ("visual-changenet", "evaluate"),
        )
    ),
    *(
        (f"{MODELS}/tao-train-{name}/schemas/manifest.json", "actions")
        for name in ("depth-anything-v2", "dino", "grounding-dino", "mask2former")
    ),
    *(
        (f"{MODELS}/tao-{name}.schema.json", key)
        for name, key in (
            ("finetune-cosmos-reason/schemas/train", "train.train_policy.dataset.test_size"),
            ("train-depth-anything-v2/schemas/train", "train.optim.lr_scheduler"),
            *(
                (
                    "train-depth-anything-v2/schemas/train",
                    f"dataset.{part}_dataset.augmentation.min_scale",
                )
                for part in ("train", "val", "test", "infer")
            ),
            ("train-image-classification/schemas/train", "dataset.dataset"),
            (
                "train-image-classification/schemas/train",
                "dataset.augmentation.random_color.hue",
            ),
            ("train-image-classification/schemas/train", "distill.loss_type"),
            (
                "train-mask2former/schemas/gen_trt_engine",
                "gen_trt_engine.tensorrt.data_type",
            ),
            (
                "train-ocrnet/schemas/dataset_convert",
                "dataset.augmentation.gaussian_radius_list",
            ),
            ("train-pointpillars/schemas/dataset_convert", "train.tcp_port"),
            ("train-visual-changenet/schemas/train", "model.backbone.type"),
        )
    ),
    *(
        (
            f"{MODELS}/tao-train-{name}/references/skill_info.yaml",
            "actions.train.outputs.export.onnx_file",
        )
        for name in ("rtdetr", "segformer")
    ),
    (MODELS, ""),
}


class TestRealBank:
    def test_exactly_the_known_flaws(self) -> None:
        findings = check_bank(skill_bank())
        assert places(findings, PROBLEM) == KNOWN_PROBLEMS
        notes = places(findings, NOTE)
        assert set(notes) == KNOWN_NOTES
        assert len(notes) == len(set(notes))

    def test_what_is_said(self) -> None:
        said = {(f.file, f.key): f.message for f in check_bank(skill_bank())}
        assert (
            said[KNOWN_PROBLEMS[0]] == "is cut short before '#SBATCH' in line 21: put it in quotes"
        )
        assert said[(MODELS, "")].startswith("71 JSON files have Infinity for a number")
        assert (
            "names quantize, a section of another action: not demanded (also"
            in (said[(f"{DINO}/schemas/distill.schema.json", "required")])
        )


Change = Callable[[Any], Any]


def edited(file: str, change: Change) -> Callable[[Path], None]:
    """A damage: the file read, changed, written."""

    def damage(root: Path) -> None:
        path = root / file
        if path.suffix == ".json":
            content = json.loads(path.read_text())
            change(content)
            put_json(path, content)
        else:
            content = yaml.safe_load(path.read_text())
            change(content)
            put_yaml(path, content)

    return damage


def written(file: str, text: str) -> Callable[[Path], None]:
    return lambda root: (root / file).write_text(text) and None


def removed(file: str) -> Callable[[Path], None]:
    return lambda root: (root / file).unlink()


def added(file: str, text: str) -> Callable[[Path], None]:
    return lambda root: (root / file).write_text((root / file).read_text() + text) and None


def train(**changes: Any) -> Callable[[Path], None]:
    """Keys of dino's train action; None takes one out."""

    def change(info: Any) -> None:
        for key, value in changes.items():
            if value is None:
                del info["actions"]["train"][key]
            else:
                info["actions"]["train"][key] = value

    return edited(INFO, change)


def platform(**changes: Any) -> Callable[[Path], None]:
    return edited(PLATFORMS, lambda content: content["platforms"][2].update(changes))


def property_of_train(key: str, **node: Any) -> Callable[[Path], None]:
    def change(schema: Any) -> None:
        schema["properties"]["train"]["properties"][key].update(node)

    return edited(TRAIN_SCHEMA, change)


PATH = "dataset.train_data_sources[0].image_dir"

DAMAGES: dict[str, tuple[Callable[[Path], None], str, str, str]] = {
    # what: damage, file, key, words of the message
    "no mode": (train(mode=None), INFO, "actions.train.mode", "is missing: set it to config or"),
    "unknown mode": (train(mode="auto"), INFO, "actions.train.mode", "'auto' is unknown"),
    "no format": (train(config_format=None), INFO, "actions.train.config_format", "is None"),
    "bad format": (train(config_format="ini"), INFO, "actions.train.config_format", "is 'ini'"),
    "no config_path": (
        train(command="dino train"),
        INFO,
        "actions.train.command",
        "does not name {config_path}",
    ),
    "other placeholder": (
        train(command="dino train -e {config_path} -g {gpus}"),
        INFO,
        "actions.train.command",
        "names {gpus}, which nothing fills",
    ),
    "no command": (train(command=None), INFO, "actions.train.command", "is missing"),
    "blank command": (train(command=" "), INFO, "actions.train.command", "must be a shell command"),
    "no inputs": (train(inputs=None), INFO, "actions.train.inputs", "is missing"),
    "no outputs": (train(outputs=None), INFO, "actions.train.outputs", "is missing"),
    "no excludes": (
        train(upload_excludes=None),
        INFO,
        "actions.train.upload_excludes",
        "is missing",
    ),
    "excludes no list": (
        train(upload_excludes="inputs/"),
        INFO,
        "actions.train.upload_excludes",
        "must be a list, not 'inputs/'",
    ),
    "inputs no mapping": (train(inputs=[PATH]), INFO, "actions.train.inputs", "must be a mapping"),
    "bad path": (
        train(inputs={"a..b": {"type": "file"}}),
        INFO,
        "actions.train.inputs.a..b",
        "is not a path into a spec",
    ),
    "bad type": (
        train(inputs={PATH: {"type": "dir"}}),
        INFO,
        f"actions.train.inputs.{PATH}.type",
        "is 'dir': use file or folder",
    ),
    "dangling image": (
        train(container_image="tao_toolkit.cosmos_predict_2_5"),
        INFO,
        "actions.train.container_image",
        "did you mean 'tao_toolkit.cosmos_predict'",
    ),
    "dangling image at the top": (
        edited(INFO, lambda info: info.update(container_image="tao_toolkit.pytt")),
        INFO,
        "container_image",
        "did you mean 'tao_toolkit.pyt'",
    ),
    "passthrough with a spec": (
        train(mode="passthrough"),
        INFO,
        "actions.train.command",
        "which passthrough never fills",
    ),
    "args without arguments": (train(mode="args"), INFO, "actions.train.args", "is missing"),
    "argument from nowhere": (
        edited(TOOL, lambda i: i["actions"]["vlm_bcq"]["args"].update(k="{kk}")),
        TOOL,
        "actions.vlm_bcq.args.k",
        "{kk} is neither an input nor an output",
    ),
    "selective without annotation": (
        edited(
            COSMOS,
            lambda i: i["actions"]["evaluate"]["inputs"]["dataset.media_dir"]["selective"].update(
                annotation="dataset.gone"
            ),
        ),
        COSMOS,
        "actions.evaluate.inputs.dataset.media_dir.selective.annotation",
        "'dataset.gone' is no input",
    ),
    "name is not the folder": (
        edited(INFO, lambda info: info.update(name="tao-train-dyno")),
        INFO,
        "name",
        "but the folder is 'tao-train-dino'",
    ),
    "no network_arch": (
        edited(INFO, lambda info: info.pop("network_arch")),
        INFO,
        "network_arch",
        "is missing",
    ),
    "sidecar of another model": (
        edited(SIDECAR, lambda info: info.update(network_arch="rtdetr")),
        SIDECAR,
        "network_arch",
        "is 'rtdetr', but the model's is 'dino'",
    ),
    "spec_params for no action": (
        edited(INFO, lambda info: info["spec_params"].update(fly={})),
        INFO,
        "spec_params.fly",
        "for an action that there is not",
    ),
    "a rule in the wrong letters": (
        edited(INFO, lambda i: i["spec_params"]["train"].update(results_dir="Output-Dir")),
        INFO,
        "spec_params.train.results_dir",
        "would be taken literally: write 'output_dir'",
    ),
    "data source without a source": (
        edited(CLIP, lambda i: i["data_sources"]["train"]["dataset.train.datasets"].pop("source")),
        CLIP,
        "data_sources.train.dataset.train.datasets.source",
        "is missing: which dataset",
    ),
    "no path for the format": (
        edited(
            COSMOS,
            lambda i: i["data_sources"]["inference"]["media"].update(path_from_format={"x": "y"}),
        ),
        COSMOS,
        "data_sources.inference.media.path_from_format",
        "has neither '*' nor the model's format 'llava'",
    ),
    "gpu key from nowhere": (
        edited(INFO, lambda info: info.update(gpu_spec_key="train.gpus")),
        INFO,
        "gpu_spec_key",
        "train.gpus is not in the spec of train",
    ),
    "a note with a colon": (
        added(SIDECAR, "notes:\n- keep this: in mind\n"),
        SIDECAR,
        "notes[0]",
        "a colon needs quotes around it",
    ),
    "a value cut short": (
        added(INFO, "extra: see #details\n"),
        INFO,
        "extra",
        "is cut short before '#details'",
    ),
    "a key given twice": (added(INFO, "name: again\n"), INFO, "name", "is given twice"),
    "credential without a name": (
        edited(INFO, lambda info: info.update(required_credentials=[{"source": "env_var"}])),
        INFO,
        "required_credentials[0]",
        "neither a name nor a mapping with one",
    ),
    "metadata is no YAML": (written(INFO, "a: [1"), INFO, "", "is not valid YAML"),
    "metadata is a list": (written(INFO, "- a\n"), INFO, "", "expected a mapping, found list"),
    "template is gone": (
        removed(f"{DINO}/references/spec_template_deploy_evaluate.yaml"),
        SIDECAR,
        "spec_templates.evaluate",
        "there is no file",
    ),
    "template is no YAML": (
        written(f"{DINO}/references/spec_template_train.yaml", "a: b: c"),
        f"{DINO}/references/spec_template_train.yaml",
        "",
        "is not valid YAML",
    ),
    "schema is no JSON": (written(TRAIN_SCHEMA, "{,}"), TRAIN_SCHEMA, "", "is not valid JSON"),
    "schema is a list": (written(TRAIN_SCHEMA, "[]"), TRAIN_SCHEMA, "", "expected a mapping"),
    "schema without properties": (
        edited(TRAIN_SCHEMA, lambda schema: schema.pop("properties")),
        TRAIN_SCHEMA,
        "properties",
        "is missing",
    ),
    "schema of another action": (
        edited(TRAIN_SCHEMA, lambda schema: schema["x_tao_schema"].update(action="prune")),
        TRAIN_SCHEMA,
        "x_tao_schema.action",
        "is 'prune', not the file's name",
    ),
    "required but no property": (
        edited(TRAIN_SCHEMA, lambda schema: schema["required"].append("gone")),
        TRAIN_SCHEMA,
        "required",
        "names gone: no such property",
    ),
    "type of the future": (
        property_of_train("num_epochs", type="quantum"),
        TRAIN_SCHEMA,
        "train.num_epochs.type",
        "'quantum' is no type that we know",
    ),
    "minimum above maximum": (
        property_of_train("num_epochs", minimum=9, maximum=3),
        TRAIN_SCHEMA,
        "train.num_epochs.minimum",
        "9 is above the maximum 3",
    ),
    "no condition": (
        property_of_train("num_epochs", math_cond="about 3"),
        TRAIN_SCHEMA,
        "train.num_epochs.math_cond",
        "is not a condition",
    ),
    "condition without its other value": (
        property_of_train("num_epochs", math_cond="> depends_on"),
        TRAIN_SCHEMA,
        "train.num_epochs.depends_on",
        "is missing: math_cond needs it",
    ),
    "no choices": (
        property_of_train("num_epochs", enum=[]),
        TRAIN_SCHEMA,
        "train.num_epochs.enum",
        "must be a list of choices",
    ),
    "no pattern": (
        property_of_train("num_epochs", pattern="("),
        TRAIN_SCHEMA,
        "train.num_epochs.pattern",
        "is no pattern",
    ),
    "a property that is none": (
        edited(TRAIN_SCHEMA, lambda schema: schema["properties"].update(train=3)),
        TRAIN_SCHEMA,
        "train",
        "is not the description of a value",
    ),
    "manifest of schemas names no file": (
        removed(TRAIN_SCHEMA),
        f"{DINO}/schemas/manifest.json",
        "actions.train.path",
        "there is no file schemas/train.schema.json",
    ),
    "manifest of schemas is of another": (
        edited(f"{DINO}/schemas/manifest.json", lambda m: m.update(network_arch="x")),
        f"{DINO}/schemas/manifest.json",
        "network_arch",
        "is 'x', but the model's is 'dino'",
    ),
    "manifest lists a model that is not": (
        lambda root: shutil.rmtree(root / DINO),
        MANIFEST,
        "models.tao-train-dino",
        "there is no such model",
    ),
    "manifest lists an action that is not": (
        edited(MANIFEST, lambda m: m["models"]["tao-train-dino"]["actions"].append("fly")),
        MANIFEST,
        "models.tao-train-dino.actions",
        "fly: the model has no such action",
    ),
    "manifest is gone": (removed(MANIFEST), MANIFEST, "", "does not exist"),
    "cache of a model that is not": (
        edited(f"{MODELS}/automl_support.json", lambda c: c["supported"][1].update(model="x")),
        f"{MODELS}/automl_support.json",
        "supported[1].model",
        "there is no model 'x'",
    ),
    "no versions": (removed("versions.yaml"), "versions.yaml", "", "does not exist"),
    "a blank version": (
        edited("versions.yaml", lambda v: v["wheels"].update(tao_sdk="")),
        "versions.yaml",
        "wheels.tao_sdk",
        "must be a version",
    ),
    "no wheels": (
        edited("versions.yaml", lambda v: v.pop("wheels")),
        "versions.yaml",
        "wheels",
        "is missing",
    ),
    "an alias of two platforms": (
        platform(aliases=["K8S"]),
        PLATFORMS,
        "platforms[4]",
        "'k8s' is a name of slurm, too",
    ),
    "a credential that nobody explains": (
        platform(required_credentials=[{"name": "SECRET_OF_MARS", "source": "env_var"}]),
        PLATFORMS,
        "platforms[2].required_credentials[0]",
        "SECRET_OF_MARS is explained nowhere",
    ),
    "a preferred credential of no group": (
        platform(credential_groups=[{"name": "g", "require_one_of": ["A"], "preferred": "B"}]),
        PLATFORMS,
        "platforms[2].credential_groups[0].preferred",
        "B is not one of the group",
    ),
    "a group of nothing": (
        platform(credential_groups=[{"name": "g"}]),
        PLATFORMS,
        "platforms[2].credential_groups[0].require_one_of",
        "is missing",
    ),
    "a platform without a backend": (
        platform(backend_type=""),
        PLATFORMS,
        "platforms[2].backend_type",
        "is missing",
    ),
    "platforms without names": (
        edited(PLATFORMS, lambda content: content.update(platforms=[{}])),
        PLATFORMS,
        "platforms[0].name",
        "is missing",
    ),
}


KEPT = ("tao-train-dino", "tao-finetune-clip", "tao-finetune-cosmos-reason")


@pytest.fixture(scope="session")
def few_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real bank with three of its models, to be copied and damaged."""
    root = tmp_path_factory.mktemp("bank") / "bank"
    shutil.copytree(skill_bank(), root)
    for path in (root / MODELS).iterdir():
        if path.is_dir() and path.name not in KEPT:
            shutil.rmtree(path)
    for file in root.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)

    def keep(content: Any) -> None:
        models = content.get("models") or {}
        for name in set(models) - set(KEPT):
            del models[name]
        if "supported" in content:
            content["supported"] = [e for e in content["supported"] if e["model"] in KEPT]

    for name in ("schemas.manifest.json", "automl_support.json"):
        edited(f"{MODELS}/{name}", keep)(root)
    return root


@pytest.fixture(scope="session")
def known(few_models: Path) -> set[Finding]:
    """What is wrong with it undamaged."""
    return set(check_bank(few_models))


@pytest.mark.parametrize("what", DAMAGES)
def test_every_damage_is_named(
    few_models: Path, known: set[Finding], tmp_path: Path, what: str
) -> None:
    damage, file, key, words = DAMAGES[what]
    root = tmp_path / "bank"
    shutil.copytree(few_models, root)
    damage(root)
    found = [each for each in check_bank(root) if each not in known and each.level == PROBLEM]
    matching = [each for each in found if (each.file, each.key) == (file, key)]
    assert matching, [str(each) for each in found]
    assert any(words in each.message for each in matching), [str(each) for each in matching]


def test_two_models_of_one_name_are_told(tmp_path: Path) -> None:
    made = Bank(tmp_path)
    made.add_model("tao-train-other")
    said = [str(finding) for finding in check_bank(made.root) if finding.level == NOTE]
    assert f"{MODELS}: network_arch: tiny_net is the name of tao-train-other and {TINY}" in said
    assert f"{MANIFEST}: models: does not list tao-train-other" in said
