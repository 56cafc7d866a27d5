"""The packaged bank: sound, current, complete, and in our own words."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]  # for `tools` and `tiny_trainer`

from tools.bank import __main__ as generator

import tao_sdk
from lab import skill_bank
from tao_sdk.script_runner import build_entrypoint
from tao_sdk.skills import SkillBank, action, validate_spec
from tao_sdk.skills.checking import NOTE, check_bank
from tao_sdk.skills.layout import PACKAGED_BANK
from tao_sdk.versions import load_manifest

BANK = SkillBank(PACKAGED_BANK)
MODELS = BANK.list_models()
ACTIONS = [
    pytest.param(model, name, deploy, variant, id=f"{model}-{name}{'-trt' * deploy}{variant or ''}")
    for model in MODELS
    for deploy in (False, True)
    for name, metadata in BANK.model(model).actions(deploy=deploy).items()
    for variant in BANK.model(model).variants(metadata) or [None]
]
each_action = pytest.mark.parametrize(("model", "name", "deploy", "variant"), ACTIONS)
each_model = pytest.mark.parametrize("model", MODELS)


def nodes(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every parameter of a schema by its dotted key."""
    for name, node in schema["properties"].items():
        if "properties" in node:
            yield from nodes(node, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", node


def keys_of(spec: Mapping[str, Any], known: set[str], prefix: str = "") -> Iterator[str]:
    """The dotted keys of a spec, down to where the schema has a parameter."""
    for name, value in spec.items():
        key = f"{prefix}{name}"
        if key not in known and isinstance(value, dict) and value:
            yield from keys_of(value, known, f"{key}.")
        else:
            yield key


def test_it_is_sound() -> None:
    """Only one thing is noted: lists of CLIP that have no item until a dataset is given."""
    findings = check_bank(PACKAGED_BANK)
    assert [str(finding) for finding in findings if finding.level != NOTE] == []
    assert [str(one) for one in findings if "datasets[0]." not in str(one)] == []


def test_it_is_current() -> None:
    assert generator.stale_files(generator.generated_files()) == [], "run `python -m tools.bank`"


def test_its_models() -> None:
    archs = {BANK.model(model).network_arch for model in MODELS}
    assert archs == {
        "classification_pyt",
        "clip",
        "cosmos-rl",
        "depth_net_mono",
        "dino",
        "grounding_dino",
        "mask2former",
        "ocrnet",
        "pointpillars",
        "rtdetr",
        "segformer",
        "tiny_trainer",
        "visual-changenet",
    }


@each_action
def test_an_action_is_ready_for_the_runner(
    model: str, name: str, deploy: bool, variant: str | None
) -> None:
    """Its image resolves, its default spec fits its schema, and its command can be packed."""
    made = action(model, name, bank=BANK, deploy=deploy, variant=variant)
    assert ":" in made.image
    schema = BANK.model(model).schema(BANK.model(model).action(name, deploy=deploy))
    if schema is not None:
        assert validate_spec(made.specs, schema, name) == []
        known = {key for key, _ in nodes(schema)}
        assert set(keys_of(made.specs, known)) <= known
    assert "{config_path}" in made.command
    arguments = made.entrypoint_arguments()
    arguments["inputs"] = {
        key: {**options, "optional": True} for key, options in made.inputs.items()
    }
    assert build_entrypoint(**arguments)["command"]


@each_model
def test_a_train_schema_is_whole(model: str) -> None:
    schema = BANK.get_schema(model, "train")
    assert schema is not None
    parameters = dict(nodes(schema))
    searched = {key for key, node in parameters.items() if node.get("automl_enabled")}
    assert searched, "AutoML would have nothing to search"
    assert set(schema["automl_default_parameters"]) == searched
    assert [key for key in searched if not parameters[key].get("description")] == []
    explained = sum(bool(node.get("description")) for node in parameters.values())
    assert explained / len(parameters) > 0.5
    for node in parameters.values():
        for key in str(node.get("depends_on", "")).split(","):
            assert not key or key in parameters


@each_model
def test_data_are_found_below_their_roots(model: str) -> None:
    """Root mode fills every input that training needs, but for what another action makes first."""
    sources = BANK.model(model).action("train").section("data_sources")
    roots = {rule["source"]: f"s3://bucket/{rule['source']}" for rule in sources.values()}
    made = action(model, "train", bank=BANK, dataset_roots=roots)
    assert set(made.missing) <= {"dataset.data_info_path"}


@each_model
def test_short_names_lead_somewhere(model: str) -> None:
    short = BANK.get_model_config(model)["spec_shorthand_keys"]
    assert {"num_epochs", "batch_size"} <= set(short)
    made = action(model, "train", bank=BANK, overrides={"num_epochs": 3})
    section, _, key = short["num_epochs"].partition(".")
    assert made.specs[section][key] == 3


def test_its_json_is_strict() -> None:
    def refuse(word: str) -> None:
        raise ValueError(word)

    for path in PACKAGED_BANK.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def test_its_wheels_are_this_version_with_extras_that_exist() -> None:
    wheels = load_manifest(PACKAGED_BANK / "versions.yaml")["wheels"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for requirement in wheels.values():
        found = re.fullmatch(r"tao-sdk(?:\[([a-z,]+)\])?==(.+)", requirement)
        assert found, requirement
        assert found[2] == tao_sdk.__version__
        for extra in (found[1] or "all").split(","):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra


@pytest.mark.seed("000.4", "001.6", "001.8")
def test_platforms_explain_what_they_ask_for() -> None:
    path = PACKAGED_BANK / "skills" / "platform" / "platforms.manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    assert manifest["schema_version"] == 3
    used = set()
    for platform in manifest["platforms"]:
        optional = {entry["name"] for entry in platform["optional_credentials"]}
        required = {entry["name"] for entry in platform["required_credentials"]}
        assert not optional & required
        used |= optional | required
        for group in platform.get("credential_groups", []):
            used |= set(group["require_one_of"])
        assert platform["dataset_examples"]
        assert platform["preflight_checks"]
    assert used == set(manifest["credential_definitions"])
    for name, texts in manifest["credential_definitions"].items():
        assert texts["description"].endswith("."), name
        assert texts["how_to_get"].endswith("."), name
    brev = next(one for one in manifest["platforms"] if one["name"] == "brev")
    assert brev["required_credentials"] == []


def test_the_demo_trainer_is_described_as_it_is() -> None:
    """Keys and defaults of its spec are those of its dataclasses."""
    from dataclasses import asdict

    from tiny_trainer.spec import Spec

    schemas = [BANK.get_schema("tiny_trainer", name) for name in BANK.list_actions("tiny_trainer")]
    described = {key: node for schema in schemas for key, node in nodes(schema or {})}
    real: dict[str, Any] = {}

    def collect(section: Mapping[str, Any], prefix: str) -> None:
        for name, value in section.items():
            if isinstance(value, dict):
                collect(value, f"{prefix}{name}.")
            else:
                real[f"{prefix}{name}"] = list(value) if isinstance(value, tuple) else value

    collect(asdict(Spec()), "")
    assert {key: node.get("default") for key, node in described.items()} == real


def test_wheels_and_source_archives_hold_it() -> None:
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    there = {
        path.relative_to(PACKAGED_BANK).as_posix()
        for path in PACKAGED_BANK.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for builder, folder in (
        (WheelBuilder(str(ROOT)), "tao_sdk/skills/bank/"),
        (SdistBuilder(str(ROOT)), "src/tao_sdk/skills/bank/"),
    ):
        packed = {file.distribution_path for file in builder.recurse_included_files()}
        assert {name for name in there if f"{folder}{name}" not in packed} == set()


def texts_of(bank: Path) -> Iterator[str]:
    """Every text of a bank that somebody had to word."""
    for path in sorted(bank.rglob("*")):
        if path.suffix not in (".json", ".yaml") or not path.is_file():
            continue
        load = json.loads if path.suffix == ".json" else yaml.safe_load
        yield from _worded(load(path.read_text(encoding="utf-8")))


def _worded(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _worded(item)
    elif isinstance(value, list):
        for item in value:
            yield from _worded(item)
    elif isinstance(value, str) and len(value.split()) >= 5:
        yield " ".join(value.lower().rstrip(".").split())


def test_nothing_is_worded_as_in_the_reference() -> None:
    """Facts carry over, commands among them; sentences do not."""
    examples = {"describe this video briefly"}
    commands = re.compile(r"\{config_path\}|^bash skills/")
    ours = {text for text in texts_of(PACKAGED_BANK) if not commands.search(text)}
    assert ours & set(texts_of(skill_bank())) - examples == set()
