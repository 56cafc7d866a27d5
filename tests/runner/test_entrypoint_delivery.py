"""Results, as a whole: where they go, that they get there however the job ends, what is said."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from entrypoints import JOB, Container, entrypoint, files_below, until
from stores import Bucket

from lab.s3 import KINDS
from lab.wire import Call, Reply, WireServer
from tao_sdk.result_record import ResultRecord

SPEC = {"results_dir": "", "export": {"onnx_file": "???"}}
OUTPUTS = {"results_dir": {"type": "folder"}, "export.onnx_file": {"type": "file"}}
TRAIN = """
read_spec() { python3 -c "import json,sys; print(json.load(open(sys.argv[1]))$2)" "$1"; }
out=$(read_spec {config_path} "['results_dir']"); onnx=$(read_spec {config_path} "['export']['onnx_file']")
mkdir -p "$out/deep"; echo weights > "$out/deep/model.pth"; echo onnx > "$onnx"
"""  # noqa: E501 - a script
FILES = {
    "results_dir/deep/model.pth": b"weights\n",
    "export_onnx_file/model.onnx": b"onnx\n",
}


def job(after: str = "", **asked: Any) -> str:
    return entrypoint(
        command=TRAIN + after,
        **{"specs": SPEC, "outputs": OUTPUTS, "config_format": "json", **asked},
    )


def results_in(folder: Path) -> dict[str, bytes]:
    """The files of the job without ours."""
    return {
        name: data
        for name, data in files_below(folder).items()
        if not name.startswith((".tao", "spec.", "tao_result"))
    }


# -- the table of destinations


@pytest.mark.seed("000.12")
@pytest.mark.parametrize("bucket", KINDS, indirect=True)
def test_a_bucket(box: Container, bucket: Bucket) -> None:
    """Uploaded to `s3://<bucket>/results/<job>/<key>/`, with the record beside."""
    ended = box.run(job(), env=bucket.results)
    assert ended.code == 0, ended.err
    assert bucket.below(f"results/{JOB}") == FILES
    assert "uploaded 2/2 declared outputs" in ended.err
    assert "NOT survive" not in ended.err
    text = bucket.read(f"results/{JOB}/tao_result.json").decode()
    assert json.loads(text) == box.record()
    assert ResultRecord.parse(text, JOB)


@pytest.mark.seed("000.12", "000.13")
def test_a_mount(box: Container, bucket: Bucket) -> None:
    """On `<root>/<job>/<key>/`, and nothing is uploaded even where there is a bucket."""
    ended = box.run(job(), env={**bucket.results, "TAO_RESULTS_ROOT": f"{box.root}/"})
    assert ended.code == 0, ended.err
    assert results_in(box.work) == FILES
    assert bucket.names() == []
    assert "outputs are on the mount" in ended.err
    assert "NOT survive" not in ended.err


@pytest.mark.seed("000.12")
def test_neither(box: Container) -> None:
    """Lesson A13: the loud warning, exactly when it is true."""
    ended = box.run(job())
    assert ended.code == 0, ended.err
    assert results_in(box.work) == FILES
    assert f"WARNING: {box.work}/results_dir" in ended.err
    assert "NOT survive" in ended.said[-1]
    silent = box.run(entrypoint(command="true {config_path}", specs={"a": 1}))
    assert "survive" not in silent.err, "nothing was declared"


@pytest.mark.seed("000.14")
def test_an_explicit_uri_wins(box: Container, bucket: Bucket) -> None:
    """Lesson A13: it is delivered without any S3_BUCKET_NAME, and nobody says it is lost."""
    spec = {
        "results_dir": "s3://bucket/mine/run 7",
        "export": {"onnx_file": "s3://bucket/mine/final.onnx"},
    }
    ended = box.run(job(specs=spec), env=bucket.env)
    assert ended.code == 0, ended.err
    assert bucket.below("mine") == {"run 7/deep/model.pth": b"weights\n", "final.onnx": b"onnx\n"}
    assert "NOT survive" not in ended.err


@pytest.mark.seed("000.14")
def test_an_explicit_uri_wins_on_a_mount_too(box: Container, bucket: Bucket) -> None:
    """Lesson A13: nobody says that there is nothing to upload."""
    spec = {"results_dir": "s3://bucket/mine", "export": {"onnx_file": ""}}
    ended = box.run(job(specs=spec), env={**bucket.env, "TAO_RESULTS_ROOT": str(box.root)})
    assert ended.code == 0, ended.err
    assert bucket.below("mine") == {"deep/model.pth": b"weights\n"}
    assert (box.work / "export_onnx_file" / "model.onnx").read_bytes() == b"onnx\n"
    assert "uploaded 1/1 declared outputs: s3://bucket/mine; outputs are on the mount" in ended.err


@pytest.mark.seed("000.14")
def test_an_explicit_path_wins_and_a_relative_one_does_not(box: Container, bucket: Bucket) -> None:
    """Lesson A13: of a path outside nobody claims that it was delivered, or that it is lost."""
    kept = box.folder / "kept"
    spec = {"results_dir": str(kept), "export": {"onnx_file": "out/my.onnx"}}
    ended = box.run(job(specs=spec), env=bucket.results)
    assert ended.code == 0, ended.err
    assert files_below(kept) == {"deep/model.pth": b"weights\n"}
    assert bucket.below(f"results/{JOB}") == {"export_onnx_file/my.onnx": b"onnx\n"}
    assert f"kept where the spec says, if that is on a mount: {kept}" in ended.err


def test_some_are_lost_and_some_are_not(box: Container, bucket: Bucket) -> None:
    """Lesson A13: the warning names the one that is."""
    spec = {"results_dir": "s3://bucket/mine", "export": {"onnx_file": None}}
    ended = box.run(job(specs=spec), env=bucket.env)
    warning = next(line for line in ended.said if "NOT survive" in line)
    assert "export_onnx_file" in warning.partition("WARNING")[2]
    assert "results_dir" not in warning.partition("WARNING")[2]


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("onnx_file", None, "model.onnx"),
        ("onnx_file", "model_fp16.onnx", "model_fp16.onnx"),
        ("trt_engine", "", "model.engine"),
        ("report", "???", "report"),
    ],
)
def test_a_file_output_keeps_its_extension(box: Container, key: str, value: Any, name: str) -> None:
    """Lesson A14: exporters go by it."""
    ended = box.run(
        "cat {config_path}",
        specs={"export": {key: value}},
        outputs={f"export.{key}": {"type": "file"}},
        config_format="json",
    )
    path = Path(json.loads(ended.out)["export"][key])
    assert path == box.work / f"export_{key}" / name
    assert path.parent.is_dir(), "there is a place to write it"


def test_passthrough_outputs(box: Container, bucket: Bucket) -> None:
    """Uploaded by name, or to a URI of their own; what was not written is said."""
    out = box.folder / "out"
    ended = box.run(
        f"mkdir -p {out}/a; echo 1 > {out}/a/x; echo 2 > {out}/b.txt",
        env=bucket.results,
        outputs={f"{out}/a": None, f"{out}/b.txt": "s3://bucket/own/b", f"{out}/c": None},
    )
    assert ended.code == 0, ended.err
    assert bucket.below(f"results/{JOB}") == {"a/x": b"1\n"}
    assert bucket.read("own/b") == b"2\n"
    assert f"{out}/c was not written" in ended.err
    assert "uploaded 2/3 declared outputs" in ended.err


def test_passthrough_outputs_are_copied_to_a_mount(box: Container) -> None:
    """A path outside the mount would be lost with the container."""
    out = box.folder / "out"
    ended = box.run(
        f"mkdir -p {out}/a; echo 1 > {out}/a/x; echo 2 > {out}/b.txt",
        env={"TAO_RESULTS_ROOT": str(box.root)},
        outputs=[f"{out}/a", f"{out}/b.txt"],
    )
    assert ended.code == 0, ended.err
    assert results_in(box.work) == {"a/x": b"1\n", "b.txt": b"2\n"}
    assert box.record()["delivered"]["files"] == 2


# -- however it ends


@pytest.mark.parametrize("bucket", KINDS, indirect=True)
def test_the_results_of_a_failed_job_are_delivered(box: Container, bucket: Bucket) -> None:
    """Lesson A6: with the command's own exit code."""
    ended = box.run(job("exit 3"), env=bucket.results)
    assert ended.code == 3
    assert bucket.below(f"results/{JOB}") == FILES
    assert json.loads(bucket.read(f"results/{JOB}/tao_result.json"))["exit_code"] == 3


@pytest.mark.parametrize(
    "after", ["cp {config_path} {config_path}.bak", 'rm -rf "$(dirname {config_path})"']
)
def test_whatever_the_command_does_beside_its_spec(
    box: Container, bucket: Bucket, after: str
) -> None:
    """A blank in the path makes it a link in a folder of its own, which goes in the end."""
    env = {**bucket.results, "TAO_WORK_ROOT": str(box.folder / "my work")}
    ended = box.run(job(f"echo {{config_path}}; {after}"), env=env)
    assert ended.code == 0, ended.err
    assert bucket.below(f"results/{JOB}") == FILES
    assert not Path(ended.out.strip()).parent.exists()


def test_sigquit_is_an_order_to_stop(box: Container, bucket: Bucket) -> None:
    process = box.start(job('trap "exit 131" QUIT; touch ready; sleep 600 & wait'), bucket.results)
    until(lambda: (box.cwd / "ready").exists(), "running")
    process.send_signal(signal.SIGQUIT)
    assert box.end(process).code == 131
    assert bucket.below(f"results/{JOB}") == FILES


def test_the_record_of_a_failed_staging_is_in_the_bucket(box: Container, bucket: Bucket) -> None:
    asked: dict[str, Any] = {"specs": {**SPEC, "data": "s3://bucket/none/"}, "inputs": {"data": {}}}
    ended = box.run(job(**asked), env=bucket.results)
    assert ended.code == 1
    record = json.loads(bucket.read(f"results/{JOB}/tao_result.json"))
    assert record["exit_code"] == 1
    assert "s3://bucket/none/: there is no such folder" in record["error"]


def test_there_is_time_for_the_record_when_the_time_is_up(box: Container) -> None:
    """The store takes the record, but no file."""
    may_end = threading.Event()
    stored: dict[str, bytes] = {}

    def answer(call: Call) -> Reply:
        if call.path.endswith("/model.pth"):
            may_end.wait(30)
        stored[call.parts[-1]] = call.body
        tag = hashlib.md5(call.body, usedforsecurity=False).hexdigest()
        return Reply(200, b"", {"ETag": f'"{tag}"'})

    store = WireServer(answer)
    env = {"ACCESS_KEY": "a", "SECRET_KEY": "b", "S3_BUCKET_NAME": "bucket"}
    env |= {"S3_ENDPOINT_URL": store.url, "TAO_DELIVERY_SECONDS": "4"}
    try:
        process = box.start(job('trap "exit 143" TERM; touch ready; sleep 600 & wait'), env)
        until(lambda: (box.cwd / "ready").exists(), "running")
        process.terminate()
        assert box.end(process).code == 143
    finally:
        may_end.set()
        store.close()
    record = json.loads(stored["tao_result.json"])
    assert record["delivered"]["failed_count"] > 0


def test_a_work_folder_that_cannot_be_made(box: Container) -> None:
    ended = box.run(job(), env={"TAO_WORK_ROOT": "/proc/none"})
    assert "/proc/none: " in ended.error
    assert "set TAO_WORK_ROOT to a folder that the job may write to" in ended.error


def test_a_mistake_of_the_runners_own_is_told_and_recorded(box: Container) -> None:
    program = "from tao_sdk.runner.entry import main; main({'command': 'true'})"
    env = {"TAO_RESULTS_ROOT": str(box.root), "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = box.run(f"{sys.executable} -c {shlex.quote(program)}", env=env)
    assert ended.code == 1
    assert ended.error == "error: internal error: KeyError: 'inputs'"
    assert "Traceback" in ended.err
    assert box.record()["error"] == "internal error: KeyError: 'inputs'"


@pytest.mark.parametrize("whom", ["the first process", "the group"])
def test_the_results_of_a_stopped_job_are_delivered(
    box: Container, bucket: Bucket, whom: str
) -> None:
    """Lesson A6: what it had written, and what it wrote when it heard of SIGTERM."""
    process = box.start(
        job('trap "echo last > $out/last.pth; exit 143" TERM; touch ready; sleep 600 & wait'),
        bucket.results,
    )
    until(lambda: (box.cwd / "ready").exists(), "running")
    if whom == "the group":
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()
    ended = box.end(process)
    assert ended.code == 143, ended.err
    assert bucket.below(f"results/{JOB}") == {**FILES, "results_dir/last.pth": b"last\n"}


def test_results_are_delivered_while_the_job_runs(box: Container, bucket: Bucket) -> None:
    """Lesson A6: nothing survives kill -9 but what was delivered before."""
    process = box.start(
        job("touch -d '1 minute ago' $out/deep/* $onnx; sleep 600"),
        {**bucket.results, "TAO_SYNC_SECONDS": "0.05"},
    )
    until(lambda: bucket.below(f"results/{JOB}") == FILES, "delivered meanwhile")
    process.kill()
    box.end(process)


def test_nothing_is_delivered_meanwhile_when_it_is_off(box: Container, bucket: Bucket) -> None:
    ended = box.run(job(), env={**bucket.results, "TAO_SYNC_SECONDS": "0"})
    assert ended.code == 0, ended.err
    assert bucket.below(f"results/{JOB}") == FILES


# -- what is delivered


@pytest.mark.parametrize(
    ("excludes", "left"),
    [
        (["inputs/"], {"a.pth", "sub/keep", "sub/inputs"}),
        (["*.pth"], {"inputs/i", "sub/keep", "sub/inputs"}),
        (["/sub/*", "!/sub/keep"], {"a.pth", "inputs/i", "sub/keep"}),
    ],
)
def test_excludes_mean_what_gitignore_means(
    box: Container, bucket: Bucket, excludes: list[str], left: set[str]
) -> None:
    """Lesson A8: `inputs/` is the folder, with everything in it."""
    out = box.folder / "out"
    ended = box.run(
        f"mkdir -p {out}/inputs {out}/sub; cd {out}; touch a.pth inputs/i sub/keep sub/inputs",
        env=bucket.results,
        outputs=[str(out)],
        upload_excludes=excludes,
    )
    assert ended.code == 0, ended.err
    assert set(bucket.below(f"results/{JOB}/out")) == left


def test_inputs_below_an_output_are_never_delivered(box: Container, bucket: Bucket) -> None:
    """Lesson A8: even where the whole job's folder is an output, and nothing is excluded."""
    bucket.put({"data/x": b"big"})
    ended = box.run(
        f"echo r > {box.work}/r",
        env=bucket.results,
        inputs={f"{box.work}/inputs/d": "s3://bucket/data"},
        outputs=[str(box.work)],
    )
    assert ended.code == 0, ended.err
    assert bucket.below(f"results/{JOB}") == {f"{JOB}/r": b"r\n"}


def test_links(box: Container, bucket: Bucket) -> None:
    """Lesson A7: a broken one is a warning; a good one is delivered as what it names."""
    out = box.folder / "out"
    ended = box.run(
        f"mkdir {out}; cd {out}; echo 1 > epoch_1.pth; ln -s epoch_1.pth latest.pth; "
        "ln -s gone.pth broken; ln -s /etc/passwd outside; mkfifo pipe",
        env=bucket.results,
        outputs=[str(out)],
    )
    assert ended.code == 0, ended.err
    assert bucket.below(f"results/{JOB}/out") == {"epoch_1.pth": b"1\n", "latest.pth": b"1\n"}
    assert f"{out}/broken is not delivered: it is a broken link" in ended.err
    record = json.loads(bucket.read(f"results/{JOB}/tao_result.json"))
    assert {each["path"] for each in record["delivered"]["skipped"]} == {
        f"{out}/broken",
        f"{out}/outside",
        f"{out}/pipe",
    }


def test_names_that_stores_find_hard(box: Container, bucket: Bucket) -> None:
    names = {"a b+c%20.txt", "ünï/cødé 模型.pth", "q?x=1&y#z", "tick'\"$.json"}
    out = box.folder / "out"
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(name)
    ended = box.run("true", env=bucket.results, outputs=[str(out)])
    assert ended.code == 0, ended.err
    assert bucket.below(f"results/{JOB}/out") == {name: name.encode() for name in names}
    back = box.run(
        "true", env=bucket.env, inputs={f"{box.folder}/b": f"s3://bucket/results/{JOB}/out"}
    )
    assert back.code == 0, back.err
    assert files_below(box.folder / "b") == {name: name.encode() for name in names}


# -- what is known afterwards


def test_the_record_says_how_it_went(box: Container, bucket: Bucket) -> None:
    bucket.put({"in/a": b"12345"})
    box.run(
        job(specs={**SPEC, "d": "s3://bucket/in", "e": "s3://bucket/undeclared"}, inputs=["d"]),
        env={**bucket.results, "TAO_ATTEMPT": "2"},
    )
    record = box.record()
    assert (record["attempt"], record["rank"], record["exit_code"]) == (2, 0, 0)
    assert record["staged"] == {"files": 1, "bytes": 5}
    assert record["delivered"]["files"] == 2
    assert record["delivered"]["bytes"] == len(b"weights\n" + b"onnx\n")
    assert set(record["seconds"]) == {"staging", "running", "delivering"}
    assert record["command"]["exit_code"] == 0
    assert "s3://bucket/undeclared" in record["warnings"][0]
