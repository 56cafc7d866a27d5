"""Where results go."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from tao_sdk.planning.output_plan import plan_outputs
from tao_sdk.planning.spec_paths import check_places
from tao_sdk.runner.destinations import Destination, delivery_note, destination, results_kind
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.tasks import OutputTask, write_paths


def rewrite_outputs(values: dict[str, Any], tasks: Sequence[OutputTask]) -> dict[str, Any]:
    """What the client checks, and the runner writes into a spec."""
    check_places(values, [place for task in tasks for place in task.keys])
    written = copy.deepcopy(values)
    write_paths(written, [], tasks)
    return written


MOUNT = Destination("mount", "/lustre/results/job", "/lustre/results/job")
S3 = Destination("s3", "s3://b/results/job", "/results/job")
EPHEMERAL = Destination("ephemeral", "/results/job", "/results/job")


def one(value: Any, to: Destination, kind: str = "folder", **more: Any) -> tuple[str, str]:
    """Local path and URI of the output `export.onnx_file` or `train.out-dir` with this value."""
    key, name = ("export", "onnx_file") if kind == "file" else ("train", "out-dir")
    spec = {} if value is ... else {key: {name: value}}
    (task,) = plan_outputs("config", spec, {f"{key}.{name}": {"type": kind}}, to, **more)
    assert task.want == kind
    assert rewrite_outputs(spec, [task])[key][name] == task.local
    return task.local, task.uri


@pytest.mark.seed("000.12")
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"TAO_RESULTS_ROOT": "/w", "S3_BUCKET_NAME": "b"}, ("mount", "/w/job")),
        ({"TAO_RESULTS_ROOT": " ", "S3_BUCKET_NAME": "b"}, ("s3", "s3://b/results/job")),
        ({"S3_BUCKET_NAME": " s3://b/ "}, ("s3", "s3://b/results/job")),
        ({"S3_BUCKET_NAME": "b/prefix"}, ("s3", "s3://b/prefix/results/job")),
        ({"S3_BUCKET_NAME": " "}, ("ephemeral", "/w/job")),
        ({}, ("ephemeral", "/w/job")),
    ],
)
def test_destinations(env: dict[str, str], expected: tuple[str, str]) -> None:
    kind, root = expected
    assert results_kind(env) == kind
    assert destination(env, "/w/job") == Destination(kind, root, "/w/job")


class TestFolders:
    @pytest.mark.seed("000.12", "000.14")
    @pytest.mark.parametrize("value", [..., None, "", "output", "./out", "???", 3, "${x}/y", {}])
    def test_filled_in(self, value: Any) -> None:
        assert one(value, MOUNT) == ("/lustre/results/job/train_out_dir", "")
        assert one(value, S3) == (
            "/results/job/train_out_dir",
            "s3://b/results/job/train_out_dir",
        )
        assert one(value, EPHEMERAL) == ("/results/job/train_out_dir", "")

    @pytest.mark.seed("000.14")
    @pytest.mark.parametrize("to", [MOUNT, S3, EPHEMERAL])
    def test_explicit_values_win(self, to: Destination) -> None:
        assert one("/data/out", to) == ("/data/out", "")
        assert one("lustre:///data/out", to) == ("/data/out", "")
        assert one("s3://other/run", to) == (f"{to.work}/train_out_dir", "s3://other/run")

    def test_mount_path(self) -> None:
        assert one("s3://o/run/", S3, mount_path="/mnt") == ("/mnt/o/run", "s3://o/run/")
        assert one("", S3, mount_path="/mnt") == (
            "/mnt/b/results/job/train_out_dir",
            "s3://b/results/job/train_out_dir",
        )
        assert one("", MOUNT, mount_path="/mnt") == ("/lustre/results/job/train_out_dir", "")

    @pytest.mark.parametrize("uri", ["gs://b/x", "hf_model://o/n", "ngc://o/m:1", "what://x"])
    def test_refused(self, uri: str) -> None:
        with pytest.raises(RunnerError, match=rf"outputs: train\.out-dir: {uri}: .* use an s3://"):
            one(uri, S3)

    def test_in_lists(self) -> None:
        spec = {"runs": [{"results_dir": ""}, {}, {"results_dir": "/x"}]}
        tasks = plan_outputs("config", spec, {"runs[*].results_dir": None}, MOUNT)
        assert rewrite_outputs(spec, tasks) == {
            "runs": [
                {"results_dir": "/lustre/results/job/runs_0_results_dir"},
                {"results_dir": "/lustre/results/job/runs_1_results_dir"},
                {"results_dir": "/x"},
            ]
        }
        assert plan_outputs("config", {}, {"runs[*].results_dir": {}}, MOUNT) == ()

    def test_a_section_that_is_null(self) -> None:
        spec = {"train": None}
        tasks = plan_outputs("config", spec, ["train.results_dir"], S3)
        with pytest.raises(RunnerError, match="train should be a mapping but is null"):
            rewrite_outputs(spec, tasks)

    def test_the_spec_of_the_caller_stays(self) -> None:
        spec: dict[str, Any] = {"train": {}}
        before = copy.deepcopy(spec)
        rewrite_outputs(spec, plan_outputs("config", spec, ["train.results_dir"], S3))
        assert spec == before


class TestFiles:
    """Lesson A14: exporters go by the extension."""

    @pytest.mark.parametrize(
        ("value", "name"),
        [
            (..., "model.onnx"),
            ("", "model.onnx"),
            ("???", "model.onnx"),
            ("model", "model.onnx"),
            ("..", "model.onnx"),
            ("${results_dir}", "model.onnx"),
            ("dino.onnx", "dino.onnx"),
            ("export/a.b-1.etlt", "a.b-1.etlt"),
            ("${results_dir}/export/changenet-classify.onnx", "changenet-classify.onnx"),
        ],
    )
    def test_filled_in(self, value: Any, name: str) -> None:
        assert one(value, MOUNT, "file") == (f"/lustre/results/job/export_onnx_file/{name}", "")
        assert one(value, S3, "file") == (
            f"/results/job/export_onnx_file/{name}",
            f"s3://b/results/job/export_onnx_file/{name}",
        )

    @pytest.mark.parametrize(
        ("value", "local", "uri"),
        [
            ("/models/x.onnx", "/models/x.onnx", ""),
            ("s3://o/m/x.onnx", "/results/job/export_onnx_file/x.onnx", "s3://o/m/x.onnx"),
            ("s3://o/m/x", "/results/job/export_onnx_file/model.onnx", "s3://o/m/x"),
            ("s3://o/m/", "/results/job/export_onnx_file/model.onnx", "s3://o/m/model.onnx"),
        ],
    )
    def test_explicit(self, value: str, local: str, uri: str) -> None:
        assert one(value, S3, "file") == (local, uri)

    @pytest.mark.parametrize(
        ("key", "name"),
        [
            ("gen_trt_engine.trt_engine", "model.engine"),
            ("gen_trt_engine.save_engine", "model.engine"),
            ("prune.pruned_file", "model.pth"),
            ("gen.tensorrt.calibration.cal_cache_file", "calibration.cache"),
            ("a.report", "report"),
        ],
    )
    def test_by_key(self, key: str, name: str) -> None:
        (task,) = plan_outputs("config", {}, {key: {"type": "file"}}, EPHEMERAL)
        assert task.local == f"/results/job/{key.replace('.', '_')}/{name}"


class TestSharing:
    def test_one_destination_is_one_folder(self) -> None:
        spec = {"results_dir": "s3://o/run", "train": {"results_dir": "s3://o/run/"}}
        tasks = plan_outputs("config", spec, ["results_dir", "train.results_dir"], S3)
        assert len(tasks) == 1
        assert rewrite_outputs(spec, tasks) == {
            "results_dir": "/results/job/results_dir",
            "train": {"results_dir": "/results/job/results_dir"},
        }

    @pytest.mark.parametrize("spec", [{}, {"a": {"b": "s3://o/1"}, "a-b": "s3://o/2"}])
    def test_two_outputs_of_one_name(self, spec: dict[str, Any]) -> None:
        with pytest.raises(RunnerError, match=r"a\.b and a-b would both be put into a_b"):
            plan_outputs("config", spec, ["a.b", "a-b"], S3)


def test_arguments() -> None:
    args = {"results_dir": "", "model.out": "s3://o/x"}
    declared = {"results-dir": {}, "model.out": {"type": "file"}, "more-dir": {}}
    tasks = plan_outputs("args", args, declared, S3)
    assert rewrite_outputs(args, tasks) == {
        "results_dir": "/results/job/outputs/results_dir",
        "model.out": "/results/job/outputs/model_out/model_out",
        "more-dir": "/results/job/outputs/more_dir",
    }
    assert [task.uri for task in tasks] == [
        "s3://b/results/job/results_dir",
        "s3://o/x",
        "s3://b/results/job/more_dir",
    ]
    assert plan_outputs("args", args, ["results-dir"], MOUNT)[0].local == (
        "/lustre/results/job/results_dir"
    )


class TestPassthrough:
    def test_lists(self) -> None:
        paths = ["/data/out/", "/other/log.txt"]
        assert plan_outputs("passthrough", {}, paths, S3) == (
            OutputTask("/data/out", "s3://b/results/job/out", ""),
            OutputTask("/other/log.txt", "s3://b/results/job/log.txt", ""),
        )
        assert [task.uri for task in plan_outputs("passthrough", {}, paths, MOUNT)] == ["", ""]

    def test_mappings(self) -> None:
        declared = {"/a": "s3://o/x", "/b": None, "/c": {"type": "folder"}, "d": {"type": "text"}}
        assert plan_outputs("passthrough", {}, declared, EPHEMERAL) == (
            OutputTask("/a", "s3://o/x", ""),
            OutputTask("/b", "", ""),
            OutputTask("/c", "", ""),
        )
        assert plan_outputs("passthrough", {}, None, S3) == ()

    @pytest.mark.parametrize(
        ("declared", "message"),
        [
            (["out"], "'out' must be an absolute path"),
            (["/a/out", "/b/out"], "/a/out and /b/out would both be uploaded"),
            ({"/a": "s3://o/x", "/b": "s3://o/x/"}, "/a and /b would both be uploaded"),
            ({"/a": "/elsewhere"}, "outputs: /a: /elsewhere: .* use an s3:// URI"),
            ({"/a": "gs://b/x"}, "outputs: /a: gs://b/x: .* use an s3:// URI"),
            ({"/a": 3}, "outputs: /a: 3 is not an s3:// URI"),
            ("/a", "must be a list"),
        ],
    )
    def test_refused(self, declared: Any, message: str) -> None:
        with pytest.raises(RunnerError, match=message):
            plan_outputs("passthrough", {}, declared, S3)


class TestNote:
    """Lesson A13: it warns of a loss exactly when there is one."""

    @pytest.mark.parametrize(
        ("to", "values", "lost"),
        [
            (EPHEMERAL, ["", ""], True),
            (EPHEMERAL, ["s3://o/x", "s3://o/y"], False),
            (EPHEMERAL, ["s3://o/x", ""], True),
            (EPHEMERAL, ["/data/x", "s3://o/y"], False),
            (S3, ["", "s3://o/y"], False),
            (S3, ["", "/data/x"], False),
            (S3, ["", "/results"], True),
            (S3, ["", "/results/model.engine"], True),
            (MOUNT, ["", "/lustre/results/x"], False),
            (MOUNT, ["s3://o/x", "/data"], False),
        ],
    )
    def test_loss(self, to: Destination, values: list[str], lost: bool) -> None:
        spec = dict(zip("ab", values, strict=True))
        note = delivery_note(to, plan_outputs("config", spec, ["a", "b"], to))
        assert ("NOT survive" in note) == lost
        assert ("WARNING" in note) == lost

    @pytest.mark.seed("000.12")
    def test_the_warning_names_what_is_lost_and_the_remedy(self) -> None:
        tasks = plan_outputs("config", {"b": "s3://o/kept"}, ["a", "b"], EPHEMERAL)
        _, warning = delivery_note(EPHEMERAL, tasks).split("WARNING")
        assert "/results/job/a " in warning
        assert "kept" not in warning
        assert "set S3_BUCKET_NAME" in warning
        assert "mount storage at /results" in warning

    def test_uploads(self) -> None:
        tasks = plan_outputs("config", {}, ["a", "b"], S3)
        assert delivery_note(S3, tasks, failed=["s3://b/results/job/b"]) == (
            "uploaded 1/2 declared outputs: s3://b/results/job/a"
        )
        failed = [task.uri for task in tasks]
        assert delivery_note(S3, tasks, failed) == "uploaded 0/2 declared outputs"

    def test_a_mount_and_more(self) -> None:
        spec = {"b": "s3://o/x", "c": "/data"}
        note = delivery_note(MOUNT, plan_outputs("config", spec, ["a", "b", "c"], MOUNT))
        assert note == (
            "uploaded 1/1 declared outputs: s3://o/x; "
            "outputs are on the mount: /lustre/results/job; "
            "kept where the spec says, if that is on a mount: /data"
        )

    def test_nothing_to_say(self) -> None:
        assert delivery_note(EPHEMERAL, ()) == ""
