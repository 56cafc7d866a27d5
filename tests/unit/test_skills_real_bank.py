"""Every model and action of a real bank: image, default spec, datasets, schema."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import skill_bank
from tao_sdk.skills import SkillAction, SkillBank, action, validate_spec
from tao_sdk.skills.datasets import sources_of
from tao_sdk.skills.spec_values import holds, parsed, value_at


@pytest.fixture(scope="module")
def bank() -> SkillBank:
    return SkillBank(skill_bank())


def every_action(bank: SkillBank) -> Iterator[tuple[str, str, bool, str | None]]:
    for model in bank.list_models():
        skill = bank.model(model)
        for deploy in (False, True):
            for name, metadata in skill.actions(deploy=deploy).items():
                variants: list[str | None] = [*skill.variants(metadata)]
                for variant in variants or [None]:
                    yield model, name, deploy, variant


def test_every_model_answers_to_its_names(bank: SkillBank) -> None:
    assert len(bank.list_models()) == 12
    for model in bank.list_models():
        for name in bank.model(model).names():
            assert bank.find_model(name.upper()) == model


@pytest.mark.seed("000.7", "000.16")
def test_every_action_is_ready_for_a_job(bank: SkillBank) -> None:
    found: list[SkillAction] = [
        action(model, name, bank=bank, deploy=deploy, variant=variant)
        for model, name, deploy, variant in every_action(bank)
    ]
    assert len(found) == 117
    for each in found:
        assert each.mode == "config"
        assert "/" in each.image
        assert each.config_format in ("yaml", "toml")
        assert "{config_path}" in each.command
        assert each.upload_excludes == ["inputs/"]
        assert each.outputs
    empty = {f"{each.model} {each.name}" for each in found if not each.specs}
    assert empty == {"tao-finetune-clip inference", "tao-finetune-clip gen_trt_engine"}


def test_every_default_spec_holds_its_schema_but_for_known_flaws(bank: SkillBank) -> None:
    broken = set()
    for model, name, deploy, variant in every_action(bank):
        skill = bank.model(model)
        schema = skill.schema(skill.action(name, deploy=deploy))
        if schema is not None:
            spec = bank.get_default_specs(model, name, deploy=deploy, variant=variant)
            broken |= {f"{model}: {each.path}" for each in validate_spec(spec, schema, name)}
    augmentation = "tao-train-depth-anything-v2: dataset.{}_dataset.augmentation.min_scale"
    assert broken == {
        *(augmentation.format(part) for part in ("train", "val", "test", "infer")),
        "tao-train-depth-anything-v2: train.optim.lr_scheduler",
        "tao-train-image-classification: dataset.dataset",
        "tao-train-image-classification: dataset.augmentation.random_color.hue",
        "tao-train-image-classification: distill.loss_type",
        "tao-train-mask2former: gen_trt_engine.tensorrt.data_type",
        "tao-train-ocrnet: dataset.augmentation.gaussian_radius_list",
        "tao-train-pointpillars: train.tcp_port",
        "tao-finetune-cosmos-reason: train.train_policy.dataset.test_size",
        "tao-train-visual-changenet: model.backbone.type",
    }


@pytest.mark.parametrize("root", ["s3://bucket/{}", "/lustre/{}", "lustre:///data/{}"])
def test_every_map_of_datasets_fills_its_keys(bank: SkillBank, root: str) -> None:
    mapped = 0
    for model, name, deploy, variant in every_action(bank):
        metadata = bank.model(model).action(name, deploy=deploy)
        sources = metadata.section("data_sources")
        if not sources:
            continue
        names = ("train", "eval", "calibration", "inference")
        found = action(
            model,
            name,
            bank=bank,
            deploy=deploy,
            variant=variant,
            dataset_roots={source: root.format(source) for source in sources_of(sources)},
            file_names={f"{each}_dataset_annotation": "notes.json" for each in names},
        )
        for key, rule in sources.items():
            value = value_at(found.specs, key)
            first = value[0] if isinstance(value, list) else value
            paths = list(first.values()) if isinstance(first, dict) else [first]
            assert paths
            for path in paths:
                assert path.startswith(root.format(rule["source"])), (model, name, key, path)
                assert root.startswith("s3") or not path.endswith(".tar.gz")
            mapped += 1
        assert not [key for key in found.missing if key in sources]
    assert mapped > 200


def test_every_short_name_leads_somewhere(bank: SkillBank) -> None:
    """A short name must lead to a place that some action of the model has."""
    lost = []
    for model in bank.list_models():
        skill = bank.model(model)
        for short, place in skill.info["spec_shorthand_keys"].items():
            specs = [bank.get_default_specs(model, name) for name in skill.info["actions"]]
            if not any(holds(spec, parsed(place)) for spec in specs):
                lost.append(f"{model}: {short}")
    assert lost == []
