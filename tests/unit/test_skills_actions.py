"""From metadata to the arguments of a job: spec, overrides, datasets, lineage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from skill_banks import Bank, put_yaml

from tao_sdk.errors import TaoError
from tao_sdk.script_runner import build_entrypoint
from tao_sdk.skills import MissingNameError, SkillBank, SpecError, action
from tao_sdk.skills.layout import PACKAGED_BANK


@pytest.fixture
def bank(tmp_path: Path) -> SkillBank:
    return SkillBank(Bank(tmp_path).root)


class TestOverrides:
    def test_dotted_short_and_nested_keys(self, bank: SkillBank) -> None:
        found = action(
            "tiny",
            bank=bank,
            overrides={"train.lr": 0.5, "num_epochs": 3, "dataset": {"batch_size": 8}},
        )
        assert found.specs["train"] == {
            "num_epochs": 3,
            "num_gpus": 1,
            "lr": 0.5,
            "resume_training_checkpoint_path": "",
        }
        assert found.specs["dataset"]["batch_size"] == 8
        assert found.specs["dataset"]["labels"] == ""

    @pytest.mark.parametrize(
        ("overrides", "guess"),
        [
            ({"train.num_epoch": 3}, "no key 'train.num_epoch': did you mean 'train.num_epochs'"),
            ({"train": {"lrr": 3}}, "no key 'train.lrr': did you mean 'train.lr'"),
            ({"num_epoch": 3}, "no key 'num_epoch': did you mean 'num_epochs'"),
            ({"datset.labels": "x"}, "did you mean 'dataset.labels'"),
        ],
    )
    def test_a_typing_error_is_not_a_new_key(
        self, bank: SkillBank, overrides: dict[str, Any], guess: str
    ) -> None:
        with pytest.raises(MissingNameError, match=guess):
            action("tiny", bank=bank, overrides=overrides)

    def test_a_list_grows_by_its_next_item(self, bank: SkillBank) -> None:
        found = action(
            "tiny",
            bank=bank,
            overrides={"dataset.sources[0].path": "/a", "dataset.sources[1].path": "/b"},
        )
        assert found.specs["dataset"]["sources"] == [{"path": "/a"}, {"path": "/b"}]
        with pytest.raises(SpecError, match=r"dataset\.sources has 0 items, so \[1\] cannot"):
            action("tiny", bank=bank, overrides={"dataset.sources[1].path": "/b"})

    def test_what_is_missing_can_be_given_as_it_is_named(self, tmp_path: Path) -> None:
        """Of a list with several items each is named, as an override takes it."""
        made = Bank(tmp_path)
        inputs = made.info["actions"]["train"]["inputs"]
        inputs["dataset.sources[0].path"] = inputs["dataset.sources[0].map"] = {"type": "file"}
        made.write()
        bank = SkillBank(tmp_path)
        two = {"dataset.sources": [{"path": "", "map": ""}, {"path": ""}]}
        found = action("tiny", bank=bank, overrides=two)
        places = [key for key in found.missing if "sources" in key]
        assert places == [
            "dataset.sources[0].path",
            "dataset.sources[1].path",
            "dataset.sources[0].map",
        ]
        given = action("tiny", bank=bank, overrides={**two, **dict.fromkeys(places, "/data")})
        assert [key for key in given.missing if "sources" in key] == []
        with pytest.raises(SpecError, match=r"sources\[\*\].path: say which item"):
            action("tiny", bank=bank, overrides={**two, "dataset.sources[*].path": "/data"})

    def test_what_the_schema_forbids_is_refused_with_every_path(self, bank: SkillBank) -> None:
        with pytest.raises(SpecError) as refused:
            action("tiny", bank=bank, overrides={"train.lr": 2.0, "num_epochs": "ten"})
        assert "train.lr: must be at most 1, not 2.0" in str(refused.value)
        assert "train.num_epochs: must be a whole number, not 'ten'" in str(refused.value)

    def test_a_rule_that_the_default_breaks_binds_nobody(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        made.schema["properties"]["dataset"]["properties"]["batch_size"]["minimum"] = 100
        made.write()
        found = action("tiny", bank=made.root, overrides={"dataset.batch_size": 8})
        assert found.specs["dataset"]["batch_size"] == 8

    def test_the_banks_own_data_is_not_changed(self, bank: SkillBank) -> None:
        action("tiny", bank=bank, overrides={"num_epochs": 99})
        assert action("tiny", bank=bank).specs["train"]["num_epochs"] == 10

    def test_compute_goes_into_the_key_of_the_model(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        put_yaml(
            made.model / "references" / "spec_template_evaluate.yaml",
            {"evaluate": {"checkpoint": "", "num_gpus": 1}},
        )
        assert action("tiny", bank=made.root, gpu_count=4).specs["train"]["num_gpus"] == 4
        found = action("tiny", "evaluate", bank=made.root, gpu_count=2)
        assert found.specs["evaluate"]["num_gpus"] == 2

    def test_a_key_of_another_section_is_suggested(self, bank: SkillBank) -> None:
        with pytest.raises(MissingNameError, match=r"no key 'lr': did you mean 'train.lr'\?"):
            action("tiny", bank=bank, overrides={"lr": 0.1})

    def test_a_count_that_the_schema_does_not_allow(self) -> None:
        with pytest.raises(SpecError, match=r"train\.num_gpus: must be at least 1, not 0"):
            action("dino", bank=PACKAGED_BANK, gpu_count=0)

    @pytest.mark.parametrize("how", [{"gpu_count": -1}, {"num_nodes": -1}])
    def test_counts_are_not_negative(self, bank: SkillBank, how: dict[str, int]) -> None:
        with pytest.raises(SpecError, match=f"{next(iter(how))}: must not be negative"):
            action("tiny", bank=bank, **how)

    @pytest.mark.parametrize(
        ("asked", "image"),
        [
            ("tao_toolkit.deploy", "registry/tao:1-deploy"),
            (" registry/own@sha256:0123 ", "registry/own@sha256:0123"),
            ("ubuntu", "ubuntu"),
        ],
    )
    def test_an_image_instead_of_the_default(self, bank: SkillBank, asked: str, image: str) -> None:
        assert action("tiny", bank=bank, image=asked).image == image

    def test_a_key_that_leads_nowhere_is_no_image(self, bank: SkillBank) -> None:
        with pytest.raises(TaoError, match=r"tao_toolkit.depoly.*did you mean"):
            action("tiny", bank=bank, image="tao_toolkit.depoly")

    def test_numbers_of_a_template_are_numbers(self, tmp_path: Path) -> None:
        """PyYAML alone reads 1e-5 as text, and the container would get text."""
        made = Bank(tmp_path)
        template = made.model / "references" / "spec_template_train.yaml"
        template.write_text(template.read_text().replace("lr: 0.001", "lr: 1e-5"))
        assert action("tiny", bank=tmp_path).specs["train"]["lr"] == 1e-5


class TestLineage:
    def test_the_parents_model_goes_where_it_belongs(self, bank: SkillBank) -> None:
        found = action("tiny", "evaluate", bank=bank, parent="s3://b/model.pth")
        assert found.specs["evaluate"] == {"checkpoint": "s3://b/model.pth", "trt_engine": ""}
        assert found.missing == []
        engine = action("tiny", "evaluate", bank=bank, parent="s3://b/model.engine")
        assert engine.specs["evaluate"] == {
            "checkpoint": "???",
            "trt_engine": "s3://b/model.engine",
        }

    def test_resuming_needs_no_pretrained_weights(self, bank: SkillBank) -> None:
        fresh = action("tiny", bank=bank, pretrained="hf_model://a/b")
        assert fresh.specs["model"]["pretrained"] == "hf_model://a/b"
        again = action("tiny", bank=bank, pretrained="hf_model://a/b", resume="/r/epoch_3.pth")
        assert again.specs["model"]["pretrained"] == ""
        assert again.specs["train"]["resume_training_checkpoint_path"] == "/r/epoch_3.pth"

    def test_results_stay_open_unless_the_caller_says_where(self, bank: SkillBank) -> None:
        assert action("tiny", bank=bank).specs["results_dir"] == ""
        assert action("tiny", bank=bank, results_dir="/r").specs["results_dir"] == "/r"

    def test_a_template_does_not_say_where_results_go(self, tmp_path: Path) -> None:
        """An absolute path would win over the platform's place and be lost with the container."""
        made = Bank(tmp_path)
        made.info["actions"]["evaluate"]["outputs"]["evaluate.report"] = {"type": "file"}
        made.write()
        template = {"results_dir": "/results", "evaluate": {"report": "/results/x/report.json"}}
        put_yaml(made.model / "references" / "spec_template_evaluate.yaml", template)
        found = action("tiny", "evaluate", bank=made.root)
        assert found.specs["results_dir"] == ""
        assert found.specs["evaluate"] == {"report": "report.json"}
        mine = action("tiny", "evaluate", bank=made.root, overrides={"results_dir": "/mnt/mine"})
        assert mine.specs["results_dir"] == "/mnt/mine"

    def test_other_rules(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        made.info["spec_params"]["train"] = {
            "dataset.labels": "JustText",
            "dataset.train_dir": "parent_model_folder",
            "model.pretrained": {"link": "https://x/y.pth", "destination_path": "/ptm/y.pth"},
            "encryption_key": "key",
            "model.made": "create_onnx_file",
        }
        made.write()
        found = action("tiny", bank=made.root, parent="s3://b/run/model.pth", encryption_key="k")
        assert found.specs["dataset"]["labels"] == "JustText"
        assert found.specs["dataset"]["train_dir"] == "s3://b/run"
        assert found.specs["encryption_key"] == "k"
        assert found.specs["model"]["pretrained"] == ""
        assert "made" not in found.specs["model"]
        assert list(found.outputs) == ["results_dir"]
        assert found.notes == [
            "model.pretrained: pretrained weights are at https://x/y.pth; put them where the job "
            "can read them and give that path as pretrained=, or train without"
        ]

    def test_a_file_that_is_created_becomes_an_output(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        made.sidecar["spec_params"] = {
            "gen_trt_engine": {"gen_trt_engine.trt_engine": "create_engine_file"}
        }
        made.write()
        found = action("tiny", "gen_trt_engine", bank=made.root)
        assert found.outputs == {
            "gen_trt_engine.trt_engine": {"type": "file"},
            "results_dir": {"type": "folder"},
        }


class TestDatasets:
    def test_a_store_keeps_archives_a_file_system_has_folders(self, bank: SkillBank) -> None:
        roots = {"train_datasets": "s3://b/train/"}
        stored = action("tiny", bank=bank, dataset_roots=roots).specs["dataset"]
        assert stored["train_dir"] == "s3://b/train/images.tar.gz"
        assert stored["labels"] == "s3://b/train/labels.json"
        here = action("tiny", bank=bank, dataset_roots={"train_datasets": "/data"}).specs["dataset"]
        assert (here["train_dir"], here["labels"]) == ("/data/images", "/data/labels.json")

    def test_overrides_win_over_roots(self, bank: SkillBank) -> None:
        found = action(
            "tiny",
            bank=bank,
            dataset_roots={"train_datasets": "s3://b/t"},
            overrides={"dataset.labels": "s3://b/exact.json"},
        )
        assert found.specs["dataset"]["labels"] == "s3://b/exact.json"

    def test_what_is_missing_is_named(self, bank: SkillBank) -> None:
        assert action("tiny", bank=bank).missing == ["dataset.train_dir", "dataset.labels"]
        roots = {"train_datasets": "s3://b/t"}
        assert action("tiny", bank=bank, dataset_roots=roots).missing == []

    def test_an_unknown_source_and_too_many_roots(self, bank: SkillBank) -> None:
        with pytest.raises(MissingNameError, match="did you mean 'train_datasets'"):
            action("tiny", bank=bank, dataset_roots={"train": "/x"})
        with pytest.raises(SpecError, match="takes one root, but 2 are given: /a, /b"):
            action("tiny", bank=bank, dataset_roots={"train_datasets": ["/a", "/b"]})

    @pytest.mark.parametrize("roots", ["", " ", ["s3://b/d", ""]])
    def test_an_empty_root_is_not_the_root_of_the_disk(
        self, bank: SkillBank, roots: str | list[str]
    ) -> None:
        with pytest.raises(SpecError, match="train_datasets: a root is empty"):
            action("tiny", bank=bank, dataset_roots={"train_datasets": roots})

    def test_no_map_at_all(self, bank: SkillBank) -> None:
        with pytest.raises(SpecError, match=r"exact paths as overrides \(evaluate\.checkpoint\)"):
            action("tiny", "evaluate", bank=bank, dataset_roots={"eval_dataset": "/x"})

    def test_a_second_dataset_is_declared_like_the_first(self, tmp_path: Path) -> None:
        """Lesson A10: metadata declares item 0 only; the others must be staged as well."""
        made = Bank(tmp_path)
        declared = {"dataset.sources[0].images": {"type": "folder"}}
        made.info["actions"]["train"]["inputs"] = declared
        made.write()
        uris = {f"dataset.sources[{number}].images": f"s3://b/{number}" for number in range(3)}
        assert list(action("tiny", bank=made.root).inputs) == ["dataset.sources[0].images"]
        found = action("tiny", bank=made.root, overrides=uris)
        assert list(found.inputs) == ["dataset.sources[*].images"]
        assert found.missing == []

    def test_lists_mappings_formats_and_tokens(self, tmp_path: Path) -> None:
        made = Bank(tmp_path)
        mapping = {
            "images": {"path": "images.tar.gz"},
            "classes": {"path": "classes.txt", "optional": True},
            "suffix": {"optional": True},
        }
        made.info["actions"]["train"]["inputs"] = {
            "dataset.sources[0].images": {"type": "folder"},
            "dataset.labels": {"type": "file"},
        }
        made.info["data_sources"]["train"] = {
            "dataset.sources": {
                "source": "train_datasets",
                "multiple_sources": True,
                "mapping": mapping,
            },
            "dataset.labels": {"source": "eval_dataset", "path": "{eval_annotation}"},
            "dataset.train_dir": {
                "source": "eval_dataset",
                "list": True,
                "path_from_format": {"coco": ["images.zip", "videos.zip"], "*": "all.zip"},
            },
            "model.pretrained": {"source": "more", "path": "", "optional": True},
        }
        made.write()
        roots = {"train_datasets": ["s3://b/1", "s3://b/2"], "eval_dataset": "s3://b/e"}
        found = action("tiny", bank=made.root, dataset_roots=roots)
        assert found.specs["dataset"]["sources"] == [
            {"images": "s3://b/1/images.tar.gz"},
            {"images": "s3://b/2/images.tar.gz"},
        ]
        assert list(found.inputs) == ["dataset.sources[*].images", "dataset.labels"]
        assert found.specs["dataset"]["train_dir"] == ["s3://b/e/images.zip"]
        assert found.missing == ["dataset.labels"]
        assert found.notes == [
            "dataset.labels: needs the name of the file, as file_names={'eval_annotation': ...}",
            "dataset.train_dir: took s3://b/e/images.zip; s3://b/e/videos.zip would do as well",
        ]
        there = {"s3://b/e/videos.zip", "s3://b/1/classes.txt"}
        chosen = action(
            "tiny",
            bank=made.root,
            dataset_roots=roots,
            file_names={"eval_annotation": "val.json"},
            exists=there.__contains__,
        )
        assert chosen.specs["dataset"]["train_dir"] == ["s3://b/e/videos.zip"]
        assert chosen.specs["dataset"]["labels"] == "s3://b/e/val.json"
        first, second = chosen.specs["dataset"]["sources"]
        assert first["classes"] == "s3://b/1/classes.txt"
        assert "classes" not in second
        assert chosen.notes == []


@pytest.mark.seed("000.16")
class TestModes:
    def data_tool(self, tmp_path: Path, **changes: Any) -> Path:
        made = Bank(tmp_path)
        generate = {
            "command": "tool run",
            "mode": "args",
            "inputs": {"input-file": {"type": "file"}},
            "outputs": {"results-dir": {"type": "folder"}},
            "upload_excludes": ["inputs/"],
            "args": {"results_dir": "{results_dir}", "input_file": "{input_file}", "n": "{count}"},
            "defaults": {"count": "3"},
            **changes,
        }
        info = {
            "network_arch": "tool",
            "type": "data",
            "container_image": "tao_toolkit.pyt",
            "actions": {"generate": generate},
        }
        put_yaml(made.root / "skills/data/tao-tool/references/skill_info.yaml", info)
        return made.root

    def test_args(self, tmp_path: Path) -> None:
        root = self.data_tool(tmp_path)
        found = action("tool", "generate", bank=root, overrides={"input-file": "s3://b/x"})
        assert found.args == {"results_dir": "", "input_file": "s3://b/x", "n": "3"}
        assert set(found.entrypoint_arguments()) >= {"args", "inputs", "outputs"}
        assert build_entrypoint(**found.entrypoint_arguments())["command"]
        assert action("tool", "generate", bank=root).missing == ["input-file"]
        with pytest.raises(MissingNameError, match="no argument 'cuont': did you mean 'count'"):
            action("tool", "generate", bank=root, overrides={"cuont": "1"})

    def test_args_of_a_command_that_takes_a_file(self, tmp_path: Path) -> None:
        """The arguments, nested, are the file; declared keys follow them there."""
        root = self.data_tool(
            tmp_path,
            command="tool -e {config_path}",
            config_format="yaml",
            args={"results_dir": "{results_dir}", "tool.data.input_file": "{input_file}"},
        )
        found = action("tool", "generate", bank=root, overrides={"input_file": "s3://b/x"})
        assert found.mode == "config"
        assert found.specs == {"results_dir": "", "tool": {"data": {"input_file": "s3://b/x"}}}
        assert list(found.inputs) == ["tool.data.input_file"]
        assert list(found.outputs) == ["results_dir"]

    def test_passthrough(self, tmp_path: Path) -> None:
        root = self.data_tool(tmp_path, mode="passthrough", inputs={}, outputs={})
        found = action("tool", "generate", bank=root)
        assert found.entrypoint_arguments()["command"] == "tool run"
        with pytest.raises(SpecError, match="runs its command as it is"):
            action("tool", "generate", bank=root, overrides={"x": 1})

    def test_config_needs_its_format(self, tmp_path: Path) -> None:
        root = self.data_tool(tmp_path, mode="config", command="tool -e {config_path}")
        with pytest.raises(ValueError, match=r"actions\.generate\.config_format: is missing"):
            action("tool", "generate", bank=root)
