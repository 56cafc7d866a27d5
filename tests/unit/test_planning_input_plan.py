"""Which input goes where."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import skill_bank
from tao_sdk.planning.input_plan import InputPlan, plan_inputs, undeclared_note
from tao_sdk.planning.output_plan import plan_outputs
from tao_sdk.planning.spec_paths import parse
from tao_sdk.runner.destinations import Destination
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.place_names import render
from tao_sdk.runner.places import set_value
from tao_sdk.runner.pretrained import pretrained_result
from tao_sdk.runner.tasks import OutputTask, Selective, StagingTask, local_result, write_paths

WORK = "/results/job"


def config(spec: dict[str, Any], declared: Any, **more: Any) -> InputPlan:
    return plan_inputs("config", spec, declared, work=WORK, **more)


def rewrite(
    values: dict[str, Any], plan: InputPlan, staged: dict[StagingTask, str | None]
) -> dict[str, Any]:
    """What the client and then the runner write back."""
    written = copy.deepcopy(values)
    for place, path in plan.in_place.items():
        set_value(written, place, path)
    write_paths(written, staged.items(), [])
    return written


def rewrite_outputs(values: dict[str, Any], tasks: tuple[OutputTask, ...]) -> dict[str, Any]:
    written = copy.deepcopy(values)
    write_paths(written, [], tasks)
    return written


def summary(plan: InputPlan) -> dict[str, tuple[str, str]]:
    """Key -> (URI, target)."""
    return {render(place): (task.uri, task.target) for task in plan.tasks for place in task.keys}


def only(plan: InputPlan) -> StagingTask:
    (task,) = plan.tasks
    return task


class TestTargets:
    def test_files_and_folders(self) -> None:
        spec = {"dataset": {"train-set": "s3://b/images/", "labels": "s3://b/l.json"}}
        plan = config(
            spec, {"dataset.train-set": {"type": "folder"}, "dataset.labels": {"type": "file"}}
        )
        images, labels = plan.tasks
        assert images.target == f"{WORK}/inputs/dataset_train-set"
        assert local_result(images, True, "images") == images.target
        assert local_result(labels, False, "l.json") == f"{WORK}/inputs/dataset_labels/l.json"
        assert (images.want, labels.want) == ("folder", "file")
        assert images.extract
        assert not images.exact

    def test_a_slash_at_the_end_wins_over_the_declared_type(self) -> None:
        assert only(config({"x": "s3://b/images/"}, {"x": {"type": "file"}})).want == "folder"

    def test_every_dataset_of_a_list(self) -> None:
        """Lesson A10: the second dataset is staged, too."""
        spec = {"data": [{"dir": "s3://b/1"}, {"dir": "s3://b/2"}, {"dir": "/local"}, {}]}
        assert summary(config(spec, {"data[*].dir": {}})) == {
            "data[0].dir": ("s3://b/1", f"{WORK}/inputs/data_0_dir"),
            "data[1].dir": ("s3://b/2", f"{WORK}/inputs/data_1_dir"),
        }

    def test_the_declaration_of_one_item_wins(self) -> None:
        spec = {"data": [{"dir": "s3://b/1"}, {"dir": "s3://b/2"}]}
        plan = config(spec, {"data[*].dir": {}, "data[1].dir": {"container_path": "/d"}})
        assert summary(plan)["data[1].dir"] == ("s3://b/2", "/d")
        assert len(plan.tasks) == 2

    def test_lists(self) -> None:
        spec = {"dirs": ["s3://b/1", "/local", "hf_model://o/n", "", 3, "s3://b/2"]}
        assert summary(config(spec, {"dirs": {"type": "list"}})) == {
            "dirs[0]": ("s3://b/1", f"{WORK}/inputs/dirs/0"),
            "dirs[2]": ("hf_model://o/n", f"{WORK}/ptm/dirs/2"),
            "dirs[5]": ("s3://b/2", f"{WORK}/inputs/dirs/5"),
        }

    def test_container_path(self) -> None:
        spec = {"a": "s3://b/x.json", "l": ["s3://b/y", "s3://b/z"]}
        plan = config(
            spec,
            {
                "a": {"type": "file", "container_path": "//data//in/"},
                "l": {"container_path": "/data/l"},
            },
        )
        assert summary(plan) == {
            "a": ("s3://b/x.json", "/data/in"),
            "l[0]": ("s3://b/y", "/data/l/0"),
            "l[1]": ("s3://b/z", "/data/l/1"),
        }
        assert local_result(plan.tasks[0], False, "x.json") == "/data/in/x.json"

    @pytest.mark.parametrize("path", ["relative", "/a/../b", 3])
    def test_no_container_path(self, path: object) -> None:
        with pytest.raises(RunnerError, match=r"inputs: a: .* must be an absolute path"):
            config({"a": "s3://b/x"}, {"a": {"container_path": path}})

    def test_mount_path(self) -> None:
        spec = {"a": "s3://b//k/x.json", "m": "hf_model://o/n", "c": "s3://b/c"}
        plan = config(spec, {"a": {}, "c": {"container_path": "/c"}}, mount_path="/mnt")
        a, c, m = plan.tasks
        assert (a.target, a.exact) == ("/mnt/b/k/x.json", True)
        assert local_result(a, False, "x.json") == "/mnt/b/k/x.json"
        assert (c.target, m.target) == ("/c", f"{WORK}/ptm/m")

    def test_options(self) -> None:
        task = only(config({"a": "s3://b/x"}, {"a": {"extract_to_parent": True, "optional": True}}))
        assert task.extract_to_parent
        assert task.optional

    def test_glob(self) -> None:
        spec = {"v": "s3://b/videos/*/x?.mp4", "w": "lustre:///d/*.mp4", "p": "/data/*.mp4"}
        kind = {"type": "local_glob"}
        plan = config(spec, {"v": kind, "w": kind, "p": kind})
        task = only(plan)
        assert (task.uri, task.pattern, task.want) == ("s3://b/videos/", "*/x?.mp4", "folder")
        assert rewrite(spec, plan, {task: local_result(task, True, "videos")}) == {
            "v": f"{WORK}/inputs/v/*/x?.mp4",
            "w": "/d/*.mp4",
            "p": "/data/*.mp4",
        }


class TestWhatIsLeftAlone:
    @pytest.mark.parametrize("value", [None, "", "/local", "relative", "???", 3, True, {}, []])
    def test_not_remote(self, value: object) -> None:
        plan = config({"a": value}, {"a": {"type": "file"}, "not.there[0].at-all": None})
        assert plan == InputPlan((), {}, (), ())

    def test_declared_as_a_list_and_without_options(self) -> None:
        """Lesson A19."""
        spec = {"a": "s3://b/x"}
        assert config(spec, ["a"]).tasks == config(spec, {"a": None}).tasks
        assert config(spec, None).tasks == ()

    def test_undeclared_uris_are_named(self) -> None:
        """Lesson A10."""
        spec = {
            "data": [{"dir": "s3://b/1"}, {"dir": "s3://b/2"}],
            "other": "gs://b/x",
            "site": "https://example.com",
            "store": "file:///tmp/runs",
            "results_dir": "s3://b/out",
        }
        plan = config(spec, {"data[0].dir": {}}, outputs={"results_dir": {}})
        assert [(render(place), uri) for place, uri in plan.undeclared] == [
            ("data[1].dir", "s3://b/2"),
            ("other", "gs://b/x"),
        ]
        note = undeclared_note(plan.undeclared)
        assert "data[1].dir = s3://b/2, other = gs://b/x" in note
        assert 'inputs={"data[*].dir": {}}' in note
        assert undeclared_note(()) == ""

    def test_an_output_is_no_input(self) -> None:
        """Real metadata declares the engine that is built as an input, too."""
        spec = {"gen": {"engine": "s3://b/x.engine"}}
        plan = config(spec, {"gen.engine": {}}, outputs={"gen.engine": {"type": "file"}})
        assert plan == InputPlan((), {}, (), ())


class TestInPlace:
    def test_paths(self) -> None:
        """Lesson A9: used where they are, lustre:// and slurm:// also when undeclared."""
        spec = {
            "a": "lustre:///l/a",
            "b": {"c": ["slurm:///l/c", "x"]},
            "d": "file:///data/d",
            "e": "file:///stays",
        }
        plan = config(spec, {"a": {}, "d": {}})
        assert plan.tasks == ()
        assert rewrite(spec, plan, {}) == {
            "a": "/l/a",
            "b": {"c": ["/l/c", "x"]},
            "d": "/data/d",
            "e": "file:///stays",
        }

    def test_which_paths_must_be_there(self) -> None:
        """Those that are declared, unless they are optional or patterns."""
        spec = {
            "a": "lustre:///l/a",
            "b": ["file:///b", "/c"],
            "o": "slurm:///o",
            "u": "lustre:///u",
        }
        spec["g"] = "lustre:///g/*.mp4"
        plan = config(spec, {"a": {}, "b": {}, "o": {"optional": True}, "g": {}})
        assert plan.links == (
            ("/l/a", "/l/a", "inputs: a: lustre:///l/a"),
            ("/b", "/b", "inputs: b[0]: file:///b"),
        )

    @pytest.mark.parametrize("uri", ["gs://b/x", "https://h/x", "hf://o/n", "other://x"])
    def test_refused(self, uri: str) -> None:
        with pytest.raises(RunnerError, match=rf"data\[0\]\.dir: {uri}: .*not supported"):
            config({"data": [{"dir": uri}]}, {"data[*].dir": {}})


class TestPretrained:
    def test_anywhere_in_the_spec(self) -> None:
        spec = {
            "policy": {"model": "hf_model://o/n"},
            "list": [{"m": "ngc://o/t/m:1"}],
            "key.with.dots": {"x": "hf_dataset://o/d"},
        }
        plan = config(spec, {"policy.model": {"type": "folder"}})
        assert summary(plan) == {
            "policy.model": ("hf_model://o/n", f"{WORK}/ptm/policy_model"),
            "list[0].m": ("ngc://o/t/m:1", f"{WORK}/ptm/list_0_m"),
            '["key.with.dots"].x': ("hf_dataset://o/d", f"{WORK}/ptm/key_with_dots_x"),
        }
        assert all(task.pretrained for task in plan.tasks)

    @pytest.mark.parametrize(
        ("names", "want", "result"),
        [
            (["model.pth", "readme.md"], "", "/model.pth"),
            (["b.ckpt", "a.pth.tar"], "file", "/a.pth.tar"),
            (["model.pth"], "folder", ""),
            (["config.json", "model.safetensors"], "", ""),
            (["config.json", "model.safetensors", "original/consolidated.pth"], "", ""),
            (["config.json", "model.pth"], "", "/model.pth"),
            (["weights/model.tlt", "notes.txt"], "", "/weights/model.tlt"),
            (["pytorch_model.bin"], "file", ""),
        ],
    )
    def test_result(self, names: list[str], want: str, result: str) -> None:
        assert (
            pretrained_result(StagingTask("ngc://o/m:1", "/t", want=want), names) == f"/t{result}"
        )


class TestSelective:
    OPTIONS = {"annotation": "data[*].notes", "format": "json", "keys": ["video"]}  # noqa: RUF012 - never changed

    def test_the_annotation_of_the_same_item(self) -> None:
        spec = {
            "data": [
                {"notes": "s3://b/n0.json", "media": "s3://b/m0"},
                {"notes": "", "media": "s3://b/m1"},
                {"notes": ["/n2.json", "s3://b/n3.json"], "media": "s3://b/m2"},
            ]
        }
        plan = config(spec, {"data[*].media": {"selective": self.OPTIONS}, "data[*].notes": {}})
        chosen = {task.uri: task.selective for task in plan.tasks if "/m" in task.uri}
        assert chosen == {
            "s3://b/m0": (Selective(("data", 0, "notes"), "json", ("video",)),),
            "s3://b/m1": (),
            "s3://b/m2": (
                Selective(("data", 2, "notes", 0), "json", ("video",)),
                Selective(("data", 2, "notes", 1), "json", ("video",)),
            ),
        }

    def test_a_folder_for_several_annotations(self) -> None:
        spec = {
            "data": [
                {"notes": "/1.json", "media": "s3://b/m"},
                {"notes": "/2.json", "media": "s3://b/m"},
            ]
        }
        assert (
            len(only(config(spec, {"data[*].media": {"selective": self.OPTIONS}})).selective) == 2
        )
        all_of_it = {**spec, "whole": "s3://b/m"}
        plan = config(all_of_it, {"data[*].media": {"selective": self.OPTIONS}, "whole": {}})
        assert only(plan).selective == ()

    @pytest.mark.parametrize("options", [{"keys": ["v"]}, {"annotation": "a"}, "a", ["a"]])
    def test_incomplete(self, options: object) -> None:
        with pytest.raises(RunnerError, match=r"m: selective: .* needs `annotation`"):
            config({"m": "s3://b/m"}, {"m": {"selective": options}})


class TestSharing:
    def test_the_same_uri_is_staged_once(self) -> None:
        spec = {"train": "s3://b/m", "val": "s3://b/m/", "model": "ngc://o/m:1", "x": "ngc://o/m:1"}
        plan = config(spec, {"train": {"optional": True}, "val": {"type": "folder"}})
        data, model = plan.tasks
        assert data.keys == (("train",), ("val",))
        assert not data.optional
        assert data.want == "folder"
        assert model.keys == (("model",), ("x",))
        written = rewrite(spec, plan, {data: "/d", model: "/m"})
        assert written == {"train": "/d", "val": "/d", "model": "/m", "x": "/m"}

    def test_not_in_places_that_were_chosen(self) -> None:
        spec = {"a": "s3://b/m", "c": "s3://b/m"}
        assert len(config(spec, {"a": {}, "c": {"container_path": "/c"}}).tasks) == 2

    def test_files_may_share_a_folder(self) -> None:
        spec = {"a": "s3://b/1.json", "b": "s3://b/2.json"}
        options = {"type": "file", "container_path": "/data"}
        assert len(config(spec, {"a": options, "b": options}).tasks) == 2

    @pytest.mark.parametrize(
        ("one", "other", "options"),
        [
            ("s3://x/1", "s3://x/2", {}),
            ("s3://x/1.json", "s3://y/1.json", {"container_path": "/d", "type": "file"}),
            ("s3://x/1", "s3://y/2", {"container_path": "/d", "type": "folder"}),
        ],
    )
    def test_two_things_in_one_place(self, one: str, other: str, options: dict[str, Any]) -> None:
        spec = {"a": {"b": one}, "a_b": other}
        with pytest.raises(RunnerError, match=r"a\.b \(s3://.*\) and a_b \(s3://.*\) would both"):
            config(spec, {"a.b": options, "a_b": options})


class TestRewrite:
    def test_optional_and_missing(self) -> None:
        spec = {"a": "s3://b/a", "l": ["s3://b/0", "s3://b/1", "s3://b/2"], "keep": 1}
        before = copy.deepcopy(spec)
        optional = {"optional": True}
        plan = config(spec, {"a": optional, "l": optional})
        staged = {task: "/two" if task.uri.endswith("/2") else None for task in plan.tasks}
        assert rewrite(spec, plan, staged) == {"l": ["/two"], "keep": 1}
        assert spec == before


class TestArguments:
    def test_hyphens_and_underscores_are_alike(self) -> None:
        args = {"input_jsonl": "s3://b/a.jsonl", "image-root": "s3://b/i", "model": "ngc://o/m:1"}
        plan = plan_inputs(
            "args", args, {"input-jsonl": {"type": "file"}, "image-root": {}}, work=WORK
        )
        assert [task.target for task in plan.tasks] == [
            f"{WORK}/inputs/input_jsonl",
            f"{WORK}/inputs/image_root",
            f"{WORK}/ptm/model",
        ]
        assert not any(task.extract for task in plan.tasks)
        staged = {task: f"/{index}" for index, task in enumerate(plan.tasks)}
        assert rewrite(args, plan, staged) == {
            "input_jsonl": "/0",
            "image-root": "/1",
            "model": "/2",
        }

    def test_names_with_dots_are_names(self) -> None:
        args = {"data.root": "s3://b/i", "data.list": ["s3://b/j"]}
        plan = plan_inputs("args", args, ["data.root"], work=WORK)
        assert only(plan).keys == (("data.root",),)
        assert plan.undeclared == ((("data.list", 0), "s3://b/j"),)


class TestPassthrough:
    def plan(self, declared: Any, **more: Any) -> InputPlan:
        return plan_inputs("passthrough", {}, declared, work=WORK, **more)

    def test_files_and_folders(self) -> None:
        """Lesson A1: what is there decides; a prefix is fetched as a folder."""
        plan = self.plan({"/data/in/": "s3://b/in", "/data/f.json": "s3://b/f.json", "/x": None})
        folder, file = plan.tasks
        assert (folder.target, folder.want, folder.exact) == ("/data/in", "", True)
        assert local_result(file, False, "f.json") == "/data/f.json"
        assert folder.extract

    def test_on_a_mount(self) -> None:
        plan = self.plan({"/d": "lustre:///l/d", "/same": "file:///same", "/e": "/other"})
        assert plan.tasks == ()
        assert plan.links == (
            ("/d", "/l/d", "inputs: /d: lustre:///l/d"),
            ("/same", "/same", "inputs: /same: file:///same"),
            ("/e", "/other", "inputs: /e: /other"),
        )

    def test_mount_path(self) -> None:
        plan = self.plan(
            {"/d": "s3://b/k", "/e": "s3://b/k", "/m": "hf_model://o/n"}, mount_path="/mnt"
        )
        data, model = plan.tasks
        assert (data.target, data.links) == ("/mnt/b/k", ("/d", "/e"))
        assert (model.target, model.links) == ("/m", ())

    @pytest.mark.parametrize(
        ("declared", "message"),
        [
            ({"relative": "s3://b/k"}, "must be an absolute path"),
            ({"/a/../../b": "s3://b/k"}, "must be an absolute path"),
            ({"/a": "gs://b/k"}, "inputs: /a: gs://b/k: .* copy the data"),
            ({"/a": "relative"}, "inputs: /a: relative: a relative path is not supported"),
            ({"/a": 3}, "inputs: /a: 3 is not a URI"),
            (["/a"], "must be a mapping"),
        ],
    )  # fmt: skip
    def test_refused(self, declared: Any, message: str) -> None:
        with pytest.raises(RunnerError, match=message):
            self.plan(declared)


def bank_actions() -> list[tuple[str, str, dict[str, Any], Path]]:
    return [
        (f"{path.parent.parent.name} {name}", name, action, path)
        for path in sorted(skill_bank().rglob("*skill_info.yaml"))
        for name, action in (yaml.safe_load(path.read_text()).get("actions") or {}).items()
    ]


DESTINATIONS = [
    Destination("mount", "/mnt/results/job", "/mnt/results/job"),
    Destination("s3", "s3://b/results/job", WORK),
    Destination("ephemeral", WORK, WORK),
]


def filled(spec: dict[str, Any], key: str) -> None:
    """Put a URI of its own at the key, making the sections and lists on the way."""
    node: Any = spec
    path = parse(key)
    for part, following in pairwise(path):
        if isinstance(node, list):
            node.extend({} for _ in range(len(node), int(part) + 1))
            node = node[int(part)]
        else:
            node = node.setdefault(part, [] if isinstance(following, int) else {})
    if isinstance(node, list):
        node.append("")
    node[path[-1]] = f"s3://bucket/{key}"


def test_real_metadata() -> None:
    """Every action of the bank can be planned: with nothing set, as its template, with URIs."""
    planned = 0
    for title, name, action, path in bank_actions():
        if not action.get("mode"):
            continue
        mode, inputs, outputs = action["mode"], action["inputs"], action["outputs"]
        template = path.parent / f"spec_template_{name}.yaml"
        specs: list[dict[str, Any]] = [{}]
        if mode == "config":
            specs.append(yaml.safe_load(template.read_text()) if template.is_file() else {})
            with_uris: dict[str, Any] = {}
            for key in inputs:
                filled(with_uris, key)
            specs.append(with_uris)
        for spec in specs:
            plan = plan_inputs(mode, spec, inputs, work=WORK, outputs=outputs)
            rewrite(spec, plan, dict.fromkeys(plan.tasks, "/local"))
            for to in DESTINATIONS:
                tasks = plan_outputs(mode, spec, outputs, to)
                assert len(tasks) == sum(d["type"] != "text" for d in outputs.values()), title
                written = rewrite_outputs(spec, tasks)
                assert not [t for t in tasks if not t.local.startswith("/")], (title, written)
        if mode == "config":
            # Every URI at a declared key is staged.
            staged = {render(place) for task in plan.tasks for place in task.keys}
            assert staged == set(inputs) - set(outputs), title
            assert plan.undeclared == (), title
        planned += 1
    assert planned
