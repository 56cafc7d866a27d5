"""A bank is found, its layouts are understood, its models answer to their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from skill_banks import TINY, Bank, put_json, put_yaml

from tao_sdk.skills import (
    AmbiguousNameError,
    BankNotFoundError,
    MetadataError,
    MissingNameError,
    SkillBank,
    action,
)
from tao_sdk.skills.layout import PACKAGED_BANK
from tao_sdk.skills.names import choices_for


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a bank, and no variable that names one."""
    monkeypatch.delenv("TAO_SKILL_BANK_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class TestFinding:
    def test_the_path_comes_before_the_variable_before_the_usual_place(
        self, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        named = Bank(tmp_path / "named").root
        by_variable = Bank(tmp_path / "variable").root
        assert SkillBank().path == PACKAGED_BANK
        usual = Bank(home / "tao-skills-external").root
        assert SkillBank().path == usual
        monkeypatch.setenv("TAO_SKILL_BANK_PATH", str(by_variable))
        assert SkillBank().path == by_variable
        assert SkillBank(named).path == named

    def test_tilde(self, home: Path) -> None:
        root = Bank(home / "mine").root
        assert SkillBank("~/mine").path == root

    def test_a_variable_that_leads_nowhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TAO_SKILL_BANK_PATH", "/no/such/bank")
        with pytest.raises(BankNotFoundError, match="TAO_SKILL_BANK_PATH=/no/such/bank is not a"):
            SkillBank()

    def test_a_folder_that_is_no_bank(self, tmp_path: Path) -> None:
        with pytest.raises(BankNotFoundError, match="is not a skill bank: it has neither"):
            SkillBank(tmp_path)

    @pytest.mark.parametrize("layout", ["nested", "flat", "old"])
    def test_every_layout(self, tmp_path: Path, layout: str) -> None:
        bank = SkillBank(Bank(tmp_path, layout).root)
        assert bank.layout == layout
        assert bank.list_models() == [TINY]
        assert bank.resolve_image("tiny_net", "gen_trt_engine") == "registry/tao:1-deploy"
        assert bank.get_default_specs("tiny_net")["train"]["num_epochs"] == 10

    def test_a_flat_bank_tells_models_by_their_metadata(self, tmp_path: Path) -> None:
        made = Bank(tmp_path, "flat")
        for kind in ("platform", "data", "workflow"):
            path = made.models / f"tao-{kind}" / "references" / "skill_info.yaml"
            put_yaml(path, {"type": kind, "network_arch": kind})
        bank = SkillBank(made.root)
        assert bank.list_models() == [TINY]
        assert [path.name for path in bank.skills("data")] == ["tao-data"]
        assert [path.name for path in bank.skills("applications")] == ["tao-workflow"]


class TestNames:
    @pytest.mark.parametrize(
        "name", [TINY, TINY.upper(), "tiny_net", "TINY_NET", " tiny ", "the tiny one"]
    )
    def test_every_name_of_a_model(self, tmp_path: Path, name: str) -> None:
        assert SkillBank(Bank(tmp_path).root).find_model(name) == TINY

    def test_an_ambiguous_name_lists_the_folders(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        made.add_model("tao-train-other")
        bank = SkillBank(made.root)
        with pytest.raises(AmbiguousNameError, match=r"\(tao-train-other, tao-train-tiny\)"):
            bank.find_model("Tiny_Net")
        assert bank.find_model("tao-train-other") == "tao-train-other"

    def test_an_unknown_name_is_guessed(self, tmp_path: Path) -> None:
        bank = SkillBank(Bank(tmp_path).root)
        with pytest.raises(MissingNameError, match="did you mean 'tiny_net'"):
            bank.find_model("tiny-nett")
        with pytest.raises(MissingNameError, match=r"there are .*tao-train-tiny"):
            bank.find_model("zzzzzz")

    def test_an_unknown_action(self, tmp_path: Path) -> None:
        bank = SkillBank(Bank(tmp_path).root)
        with pytest.raises(MissingNameError, match="no action 'evalute': did you mean 'evaluate'"):
            bank.get_default_specs("tiny", "evalute")
        with pytest.raises(MissingNameError, match="no TensorRT action 'train'"):
            bank.get_default_specs("tiny", "train", deploy=True)


class TestMetadata:
    def test_skill_info_comes_before_config_json(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        put_json(made.model / "config.json", {"network_arch": "older"})
        assert SkillBank(made.root).get_model_config(TINY)["network_arch"] == "tiny_net"

    @pytest.mark.seed("000.16")
    def test_config_json_alone_lacks_the_mode(self, tmp_path: Path) -> None:
        made = Bank(tmp_path, "old")
        stale = {
            "network_arch": "aged",
            "container_image": "registry/aged:1",
            "actions": {"train": {"command": "aged -e {config_path}", "config_format": "yaml"}},
        }
        put_json(made.models / "aged" / "config.json", stale)
        bank = SkillBank(made.root)
        assert bank.resolve_image("aged") == "registry/aged:1"
        with pytest.raises(
            MetadataError, match=r"aged/config\.json: actions\.train\.mode: is missing.*stale"
        ):
            action("aged", bank=bank)

    @pytest.mark.seed("000.16")
    def test_a_mode_that_there_is_not(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        made.info["actions"]["train"]["mode"] = "auto"
        made.write()
        with pytest.raises(MetadataError, match=r"actions\.train\.mode: 'auto' is unknown"):
            action("tiny", bank=made.root)

    def test_the_answer_is_the_callers(self, tmp_path: Path) -> None:
        bank = SkillBank(Bank(tmp_path).root)
        bank.get_model_config("tiny")["actions"].clear()
        assert bank.list_actions("tiny") == ["train", "evaluate", "gen_trt_engine"]

    def test_key_defaults_are_in_the_default_spec(self, tmp_path: Path) -> None:
        spec = SkillBank(Bank(tmp_path).root).get_default_specs("tiny")
        assert spec["model"]["backbone"] == "tiny"

    def test_without_a_template_the_schemas_default_counts(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        (made.model / "references" / "spec_template_train.yaml").unlink()
        bank = SkillBank(made.root)
        assert bank.get_default_specs("tiny")["train"]["num_epochs"] == 10
        (made.model / "schemas" / "train.schema.json").unlink()
        assert SkillBank(made.root).get_default_specs("tiny") == {"model": {"backbone": "tiny"}}

    def test_infinity_in_a_schema(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        assert "Infinity" in (made.model / "schemas" / "train.schema.json").read_text()
        schema = SkillBank(made.root).get_schema("tiny")
        assert schema is not None
        limit = schema["properties"]["dataset"]["properties"]["batch_size"]["maximum"]
        assert limit == float("inf")
        assert SkillBank(made.root).get_schema("tiny", "evaluate") is None

    def test_variants_of_a_template(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        made.sidecar["spec_templates"] = {
            "classify": {"evaluate": "spec_template_deploy_evaluate.yaml"},
            "segment": {"evaluate": "spec_template_deploy_gen_trt_engine.yaml"},
        }
        made.write()
        bank = SkillBank(made.root)
        with pytest.raises(AmbiguousNameError, match=r"\(variant=, --variant\): classify, segment"):
            bank.get_default_specs("tiny", "evaluate", deploy=True)
        with pytest.raises(MissingNameError, match="no variant 'segmnt': did you mean 'segment'"):
            bank.get_default_specs("tiny", "evaluate", deploy=True, variant="segmnt")
        spec = bank.get_default_specs("tiny", "evaluate", deploy=True, variant="segment")
        assert "gen_trt_engine" in spec


@pytest.mark.seed("001.5")
class TestImages:
    def test_the_order_of_the_four_fields(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        train = made.info["actions"]["train"]
        made.info["image"] = "registry/top-image:1"
        sources = []
        for change in (
            lambda: made.info.update(container_image="  "),
            lambda: made.info.update(container_image="tao_toolkit.pyt"),
            lambda: train.update(image="registry/action-image:1"),
            lambda: train.update(container_image="tao_toolkit.deploy"),
        ):
            change()
            made.write()
            found = SkillBank(made.root).find_image("tiny", "train")
            sources.append((found.declared.source, found.image, found.resolved_from))
        assert sources == [
            ("model.image", "registry/top-image:1", "absolute"),
            ("model.container_image", "registry/tao:1-pyt", "versions.yaml"),
            ("action.image", "registry/action-image:1", "absolute"),
            ("action.container_image", "registry/tao:1-deploy", "versions.yaml"),
        ]

    def test_the_main_file_wins_over_the_sidecar(self, tmp_path: Path) -> None:
        bank = SkillBank(Bank(tmp_path).root)
        assert bank.resolve_image("tiny", "evaluate") == "registry/tao:1-pyt"
        assert bank.resolve_image("tiny", "evaluate", deploy=True) == "registry/tao:1-deploy"

    def test_a_key_that_leads_nowhere_names_file_and_key(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        made.info["actions"]["train"]["container_image"] = "tao_toolkit.pytt"
        made.write()
        with pytest.raises(
            MetadataError,
            match=r"skill_info\.yaml: container_image: .*'tao_toolkit.pytt'; did you mean",
        ):
            SkillBank(made.root).resolve_image("tiny")

    def test_no_image_at_all(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        del made.info["container_image"]
        made.write()
        with pytest.raises(MetadataError, match="no image for tao-train-tiny train"):
            SkillBank(made.root).resolve_image("tiny")

    def test_an_override_wins_unless_it_is_empty(self, tmp_path: Path) -> None:
        root = Bank(tmp_path).root
        assert action("tiny", bank=root, image="mine:2").image == "mine:2"
        with pytest.raises(ValueError, match="image: the override is empty"):
            action("tiny", bank=root, image=" ")


@pytest.mark.parametrize(
    ("name", "known", "told"),
    [
        ("nope", ["dino", "clip"], "there are clip, dino"),
        ("dinno", ["dino", "clip"], "did you mean 'dino'?"),
        ("train", ["train_datasets", "eval_dataset"], "did you mean 'train_datasets'?"),
        ("x", [], "there are none"),
    ],
)
def test_only_a_likeness_is_suggested(name: str, known: list[str], told: str) -> None:
    assert choices_for(name, known) == told
