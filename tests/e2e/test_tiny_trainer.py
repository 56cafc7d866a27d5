"""The demo trainer, run as a user runs it: as a process."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEADLINE_SECONDS = 60.0
SMALL = {"num_samples": 500, "image_size": 8, "batch_size": 32}


def environment(**more: str) -> dict[str, str]:
    """A clean environment: nothing of a job or a cluster that the tests may run in."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": str(EXAMPLES), "OMP_NUM_THREADS": "1", **more}


def command(action: str, spec: Path, *overrides: str) -> list[str]:
    return [sys.executable, "-m", "tiny_trainer", action, "-e", str(spec), *overrides]


class Bench:
    """A folder with specs and results, and the processes started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []

    def spec(self, name: str, **sections: Any) -> Path:
        tree = {"results_dir": str(self.folder / name), "dataset": SMALL, **sections}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(tree))
        return path

    def run(self, action: str, spec: Path, *overrides: str, **env: str) -> Finished:
        return self.finish(self.start(action, spec, *overrides, **env))

    def start(self, action: str, spec: Path, *overrides: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(action, spec, *overrides),
            cwd=self.folder,
            env=environment(**env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> Finished:
        output, errors = process.communicate(timeout=DEADLINE_SECONDS)
        return Finished(process.returncode, output, errors)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()


class Finished:
    def __init__(self, code: int, output: str, errors: str) -> None:
        self.code, self.output, self.errors = code, output, errors

    def succeeded(self) -> Finished:
        assert self.code == 0, self.output + self.errors
        return self

    def weights_digest(self) -> str:
        return self.output.rpartition("sha256 ")[2].split()[0]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a small training of five epochs."""
    made = Bench(tmp_path_factory.mktemp("trained"))
    made.run("train", made.spec("straight")).succeeded()
    return made.folder / "straight"


def records(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (results / "status.json").read_text().splitlines()]


def file_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def wait_for_epoch(results: Path, epoch: int, process: subprocess.Popen[str]) -> None:
    """Wait until status.json speaks of the epoch."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        path = results / "status.json"
        if path.exists() and any(record.get("epoch", 0) >= epoch for record in records(results)):
            return
        time.sleep(0.01)
    pytest.fail(f"epoch {epoch} never came; exit code {process.poll()}")


def wait_for_line(text: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"{text!r} never came")


# -- training


@pytest.mark.parametrize("start", [["-m", "tiny_trainer"], [str(EXAMPLES / "tiny_trainer")]])
def test_default_training_learns_and_reports(tmp_path: Path, start: list[str]) -> None:
    env = environment(PYTHONPATH=str(EXAMPLES) if start[0] == "-m" else "")
    done = subprocess.run(
        [sys.executable, *start, "train"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    epochs = re.findall(
        r"^Epoch (\d)/5: train_loss=\S+ val_loss=\S+ val_acc=(\S+) lr=0.05 \d+ it/s$",
        done.stdout,
        re.MULTILINE,
    )
    assert [number for number, _ in epochs] == list("12345")
    assert float(epochs[-1][1]) > 0.9
    assert done.stdout.endswith("Execution status: PASS\n")

    results = tmp_path / "results" / "train"
    checkpoints = {f"model_epoch_{epoch:03d}.safetensors" for epoch in range(1, 6)}
    assert file_names(results) == {"status.json", *checkpoints}
    lines = records(results)
    assert [line["status"] for line in lines] == ["STARTED", *["RUNNING"] * 5, "SUCCESS"]
    assert {"date", "time", "verbosity", "message", "kpi"} <= set.intersection(*map(set, lines))
    last_epoch = lines[-2]
    assert (last_epoch["epoch"], last_epoch["max_epoch"]) == (5, 5)
    assert {"time_per_epoch", "eta"} <= set(last_epoch)
    assert f"{last_epoch['kpi']['val_acc']:.4f}" == epochs[-1][1]
    assert lines[-1]["kpi"] == last_epoch["kpi"]


def test_checkpoint_interval_always_includes_the_last_epoch(bench: Bench) -> None:
    spec = bench.spec("sparse", train={"num_epochs": 5, "checkpoint_interval": 2})
    bench.run("train", spec).succeeded()
    epochs = [path.stem[-3:] for path in sorted((bench.folder / "sparse").glob("*.safetensors"))]
    assert epochs == ["002", "004", "005"]


def test_checkpoint_is_a_safetensors_file(trained: Path) -> None:
    content = (trained / "model_epoch_005.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__")
    assert all(isinstance(value, str) for value in metadata.values())
    assert length % 8 == 0
    end = 0
    for entry in sorted(header.values(), key=lambda entry: entry["data_offsets"]):
        start, end_of_this = entry["data_offsets"]
        assert start == end
        assert end_of_this - start == 4 * int(np.prod(entry["shape"]))
        end = end_of_this
    assert len(content) == 8 + length + end
    assert header["layers.0.weight"]["shape"] == [64, 64]
    assert "optimizer.layers.1.bias" in header


def test_resume_ends_with_the_same_bytes(bench: Bench, trained: Path) -> None:
    first = bench.spec("first", train={"num_epochs": 3})
    bench.run("train", first).succeeded()
    resumed_from = str(bench.folder / "first" / "model_epoch_003.safetensors")
    second = bench.spec("second", train={"resume_training_checkpoint_path": resumed_from})
    bench.run("train", second).succeeded()
    assert file_names(bench.folder / "second") == {
        "status.json",
        "model_epoch_004.safetensors",
        "model_epoch_005.safetensors",
    }
    last = "model_epoch_005.safetensors"
    assert (bench.folder / "second" / last).read_bytes() == (trained / last).read_bytes()


def test_resume_of_a_finished_training_succeeds_with_its_metrics(
    bench: Bench, trained: Path
) -> None:
    path = str(trained / "model_epoch_005.safetensors")
    spec = bench.spec("again", train={"resume_training_checkpoint_path": path})
    bench.run("train", spec).succeeded()
    assert records(bench.folder / "again")[-1]["kpi"] == records(trained)[-1]["kpi"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_the_middle_of_an_epoch_and_resume_is_exact(
    bench: Bench, number: signal.Signals
) -> None:
    interrupted = bench.folder / "interrupted"
    spec = bench.spec("interrupted", train={"num_epochs": 1000, "epoch_seconds": 0.4})
    process = bench.start("train", spec)
    wait_for_epoch(interrupted, 1, process)
    process.send_signal(number)
    process.send_signal(number)  # as when both the process and its group get it
    done = bench.finish(process)
    assert done.code == 128 + number
    assert "train.resume_training_checkpoint_path" in done.errors
    last = records(interrupted)[-1]
    assert last["status"] == "FAILURE"
    assert "interrupted" in last["message"]

    (saved,) = interrupted.glob("model_epoch_*_step_*.safetensors")
    until = int(saved.name.split("_")[2]) + 1
    resume = {"num_epochs": until, "resume_training_checkpoint_path": str(saved)}
    bench.run("train", bench.spec("resumed", train=resume)).succeeded()
    bench.run("train", bench.spec("straight", train={"num_epochs": until})).succeeded()
    final = f"model_epoch_{until:03d}.safetensors"
    resumed = (bench.folder / "resumed" / final).read_bytes()
    assert resumed == (bench.folder / "straight" / final).read_bytes()


def test_middle_of_an_epoch_is_not_resumed_with_another_batch_size(bench: Bench) -> None:
    spec = bench.spec("interrupted", train={"num_epochs": 1000, "epoch_seconds": 0.4})
    process = bench.start("train", spec)
    wait_for_epoch(bench.folder / "interrupted", 1, process)
    process.terminate()
    bench.finish(process)
    (saved,) = (bench.folder / "interrupted").glob("model_epoch_*_step_*.safetensors")
    done = bench.run(
        "train",
        bench.spec("other"),
        f"train.resume_training_checkpoint_path={saved}",
        "dataset.batch_size=16",
    )
    assert done.code == 1
    assert "dataset.batch_size=32" in done.errors


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_truncated_checkpoint_is_refused(bench: Bench, trained: Path, kept: int) -> None:
    content = (trained / "model_epoch_003.safetensors").read_bytes()
    broken = bench.folder / "model_epoch_003.safetensors"
    broken.write_bytes(content[:kept])
    spec = bench.spec("resumed", train={"resume_training_checkpoint_path": str(broken)})
    done = bench.run("train", spec)
    assert done.code == 1
    assert re.search(rf"train.resume_training_checkpoint_path: {broken} is truncated", done.errors)
    assert records(bench.folder / "resumed")[-1]["status"] == "FAILURE"


def test_checkpoint_of_another_model_is_refused(bench: Bench, trained: Path) -> None:
    path = str(trained / "model_epoch_003.safetensors")
    train = {"resume_training_checkpoint_path": path}
    done = bench.run("train", bench.spec("other", train=train, model={"hidden": [32, 16]}))
    assert done.code == 1
    assert "[64, 64, 10]" in done.errors
    assert "[64, 32, 16, 10]" in done.errors


# -- spec


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"trian": {}}, "trian: no such key; did you mean train?"),
        ({"num_epochs": 3}, "num_epochs: no such key; did you mean train.num_epochs?"),
        (
            {"train": {"num_epoch": 3}},
            "train.num_epoch: no such key; did you mean train.num_epochs?",
        ),
        (
            {"train": {"optim": {"learning": 1}}},
            "train.optim.learning: no such key; the keys here are lr, momentum, weight_decay",
        ),
        ({"train.optim.lr": 0.1}, "train.optim.lr: no such key; write it nested"),
        (
            {"train": {"num_epochs": "five"}},
            "train.num_epochs: expected a whole number, got 'five' (string)",
        ),
        (
            {"train": {"num_epochs": True}},
            "train.num_epochs: expected a whole number, got True (boolean)",
        ),
        ({"train": {"num_epochs": 0}}, "train.num_epochs: must be at least 1, got 0"),
        ({"train": {"optim": {"lr": "fast"}}}, "train.optim.lr: expected a number, got 'fast'"),
        ({"model": {"hidden": 64}}, "model.hidden: expected a list of whole numbers, got 64"),
        ({"model": {"backend": "jax"}}, "model.backend: must be one of auto, numpy, torch"),
        ({"model": []}, "model: expected a mapping of keys, got [] (list)"),
        ({"train": {"fail_with": "exit:900"}}, "train.fail_with: must be one of"),
        ({"train": {"num_nodes": 2}}, "train.num_nodes: 2, but WORLD_SIZE says 1"),
    ],
)
def test_wrong_spec_is_refused_before_anything_is_written(
    bench: Bench, sections: dict[str, Any], message: str
) -> None:
    done = bench.run("train", bench.spec("wrong", **sections))
    assert done.code == 2
    assert message in done.errors
    assert not (bench.folder / "wrong").exists()


def test_all_problems_of_a_spec_are_named_at_once(bench: Bench) -> None:
    done = bench.run("train", bench.spec("wrong", modl={}, train={"seed": "x", "epochs": 1}))
    assert done.code == 2
    assert all(key in done.errors for key in ("modl:", "train.seed:", "train.epochs:"))


@pytest.mark.parametrize("action", ["evaluate", "export", "inference"])
def test_checkpoint_is_required(bench: Bench, action: str) -> None:
    done = bench.run(action, bench.spec("nothing"))
    assert done.code == 2
    assert f"{action}.checkpoint: required" in done.errors
    assert not (bench.folder / "nothing").exists()


def test_yaml_spec_with_exponents_nulls_and_overrides(bench: Bench) -> None:
    path = bench.folder / "spec.yaml"
    path.write_text(
        "results_dir: run\n"
        "dataset: {num_samples: 200, image_size: 8}\n"
        "train:\n"
        "  optim: {lr: 1e-3}\n"  # a string to PyYAML
        "  resume_training_checkpoint_path:\n"
    )
    done = bench.run("train", path, "train.num_epochs=2").succeeded()
    assert "Epoch 2/2: " in done.output
    assert "lr=0.001 " in done.output


@pytest.mark.parametrize(
    ("results_dir", "env", "expected"),
    [
        ("", {"TAO_RESULTS_ROOT": "{}/root", "TAO_JOB_ID": "j1"}, "root/j1/dataset"),
        ("mine", {"TAO_RESULTS_ROOT": "{}/root", "TAO_JOB_ID": "j1"}, "root/j1/mine"),
        ("{}/there", {"TAO_RESULTS_ROOT": "{}/root", "TAO_JOB_ID": "j1"}, "there"),
        ("", {}, "results/dataset"),
    ],
)
def test_results_folder(bench: Bench, results_dir: str, env: dict[str, str], expected: str) -> None:
    spec = bench.spec("spec", results_dir=results_dir.format(bench.folder))
    values = {name: value.format(bench.folder) for name, value in env.items()}
    bench.run("dataset", spec, **values).succeeded()
    assert (bench.folder / expected / "annotations.json").is_file()


# -- the other actions


def test_data_set_folder_trains_like_the_generated_one(bench: Bench, trained: Path) -> None:
    bench.run("dataset", bench.spec("digits")).succeeded()
    folder = bench.folder / "digits"
    document = json.loads((folder / "annotations.json").read_text())
    assert len(document["annotations"]) == SMALL["num_samples"]
    assert document["classes"] == list("0123456789")
    data = {"path": str(folder), "batch_size": SMALL["batch_size"]}
    bench.run("train", bench.spec("run", dataset=data)).succeeded()
    last = "model_epoch_005.safetensors"
    assert (bench.folder / "run" / last).read_bytes() == (trained / last).read_bytes()


def test_generated_data_depend_on_the_seed_alone(bench: Bench) -> None:
    for name, seed in (("one", 7), ("two", 7), ("three", 8)):
        bench.run("dataset", bench.spec(name, dataset={**SMALL, "seed": seed})).succeeded()
    one, two, three = (
        (bench.folder / name / "images.npz").read_bytes() for name in ("one", "two", "three")
    )
    assert one == two
    assert one != three


@pytest.mark.parametrize("damage", ["missing", "images", "annotations", "split"])
def test_damaged_data_set_is_refused(bench: Bench, damage: str) -> None:
    folder = bench.folder / "digits"
    bench.run("dataset", bench.spec("digits")).succeeded()
    if damage == "missing":
        (folder / "annotations.json").unlink()
    elif damage == "images":
        content = (folder / "images.npz").read_bytes()
        (folder / "images.npz").write_bytes(content[: len(content) // 2])
    else:
        document = json.loads((folder / "annotations.json").read_text())
        if damage == "annotations":
            del document["annotations"][3]
        else:
            document["annotations"] = [
                {**entry, "split": "train"} for entry in document["annotations"]
            ]
        (folder / "annotations.json").write_text(json.dumps(document))
    done = bench.run("train", bench.spec("run", dataset={"path": str(folder)}))
    assert done.code == 1
    assert "DataError: dataset.path: " in done.errors
    assert records(bench.folder / "run")[-1]["status"] == "FAILURE"


def test_evaluate_agrees_with_training(bench: Bench, trained: Path) -> None:
    checkpoint = str(trained / "model_epoch_004.safetensors")
    done = bench.run("evaluate", bench.spec("eval", evaluate={"checkpoint": checkpoint}))
    done.succeeded()
    metrics = json.loads((bench.folder / "eval" / "metrics.json").read_text())
    of_epoch_4 = records(trained)[4]["kpi"]
    assert metrics["accuracy"] == of_epoch_4["val_acc"]
    assert metrics["loss"] == of_epoch_4["val_loss"]
    assert f"accuracy={metrics['accuracy']:.4f}" in done.output
    assert records(bench.folder / "eval")[-1]["kpi"]["accuracy"] == metrics["accuracy"]


def test_export_works_without_the_trainer(bench: Bench, trained: Path) -> None:
    checkpoint = str(trained / "model_epoch_005.safetensors")
    bench.run("export", bench.spec("out", export={"checkpoint": checkpoint})).succeeded()
    graph = json.loads((bench.folder / "out" / "model.json").read_text())
    assert [node["op"] for node in graph["nodes"]] == ["linear", "relu", "linear", "softmax"]
    content = (bench.folder / "out" / graph["weights_file"]).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    names = set(json.loads(content[8 : 8 + length])) - {"__metadata__"}
    assert names == {f"layers.{n}.{kind}" for n in (0, 1) for kind in ("weight", "bias")}


def test_inference_writes_predictions(bench: Bench, trained: Path) -> None:
    checkpoint = str(trained / "model_epoch_005.safetensors")
    bench.run("inference", bench.spec("out", inference={"checkpoint": checkpoint})).succeeded()
    with open(bench.folder / "out" / "predictions.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    right = sum(row["prediction"] == row["label"] for row in rows)
    assert len(rows) == 100
    assert right / len(rows) == pytest.approx(records(trained)[-1]["kpi"]["val_acc"])
    assert all(0.1 <= float(row["confidence"]) <= 1 for row in rows)


def test_checkpoint_and_data_must_fit(bench: Bench, trained: Path) -> None:
    checkpoint = str(trained / "model_epoch_005.safetensors")
    spec = bench.spec("eval", evaluate={"checkpoint": checkpoint}, dataset={"image_size": 12})
    done = bench.run("evaluate", spec)
    assert done.code == 1
    assert "dataset.image_size" in done.errors


# -- failing on demand


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("exception", 1, "RuntimeError: asked to fail at epoch 2"),
        ("oom", 1, "CUDA out of memory"),
        ("nan", 1, "the loss is nan at epoch 2"),
        ("exit:7", 7, ""),
        ("segfault", -signal.SIGSEGV, ""),
    ],
)
def test_failing_on_demand(bench: Bench, how: str, code: int, message: str) -> None:
    done = bench.run("train", bench.spec("run", train={"fail_at_epoch": 2, "fail_with": how}))
    assert done.code == code
    assert message in done.errors
    names = file_names(bench.folder / "run")
    assert names == {"status.json", "model_epoch_001.safetensors"}
    last = records(bench.folder / "run")[-1]
    if message:
        assert last["status"] == "FAILURE"
        assert message.partition(": ")[2] in last["message"]
    else:
        assert last["status"] == "RUNNING"


def test_hanging_on_demand(bench: Bench) -> None:
    spec = bench.spec("run", train={"fail_at_epoch": 2, "fail_with": "hang"})
    process = bench.start("train", spec)
    wait_for_line("Hanging at epoch 2", process)
    assert process.poll() is None
    process.kill()
    assert bench.finish(process).code == -signal.SIGKILL


def test_divergence_is_noticed(bench: Bench) -> None:
    done = bench.run("train", bench.spec("run", train={"optim": {"lr": 1e20}}))
    assert done.code == 1
    assert "train.optim.lr" in done.errors


# -- several nodes


@pytest.fixture
def cluster() -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def test_two_ranks_train_the_same_model(
    bench: Bench, trained: Path, cluster: dict[str, str]
) -> None:
    specs = [bench.spec(f"rank{rank}") for rank in (0, 1)]
    # Rank 1 first: it has to wait for rank 0.
    other = bench.start("train", specs[1], NODE_RANK="1", **cluster)
    first = bench.run("train", specs[0], NODE_RANK="0", **cluster).succeeded()
    second = bench.finish(other).succeeded()
    assert first.weights_digest() == second.weights_digest()
    assert "[rank 1] Epoch 5/5: " in second.output
    assert not (bench.folder / "rank1").exists()
    # One batch means the same thing on one node and on two, up to rounding.
    alone, together = records(trained)[-1]["kpi"], records(bench.folder / "rank0")[-1]["kpi"]
    assert together["val_loss"] == pytest.approx(alone["val_loss"], rel=1e-3)


def test_only_rank_0_needs_the_checkpoint(
    bench: Bench, trained: Path, cluster: dict[str, str]
) -> None:
    path = str(trained / "model_epoch_003.safetensors")
    spec = bench.spec("run", train={"resume_training_checkpoint_path": path})
    other_spec = bench.spec("other", train={"resume_training_checkpoint_path": "/nowhere/x"})
    other = bench.start("train", other_spec, NODE_RANK="1", **cluster)
    first = bench.run("train", spec, NODE_RANK="0", **cluster).succeeded()
    assert bench.finish(other).succeeded().weights_digest() == first.weights_digest()


def test_signal_to_one_rank_stops_both_at_the_same_batch(
    bench: Bench, cluster: dict[str, str]
) -> None:
    specs = [
        bench.spec(f"rank{rank}", train={"num_epochs": 1000, "epoch_seconds": 0.4})
        for rank in (0, 1)
    ]
    processes = [
        bench.start("train", specs[rank], NODE_RANK=str(rank), **cluster) for rank in (0, 1)
    ]
    wait_for_epoch(bench.folder / "rank0", 1, processes[0])
    processes[1].terminate()
    assert [bench.finish(process).code for process in processes] == [143, 143]
    assert len(list((bench.folder / "rank0").glob("*_step_*.safetensors"))) == 1
    assert not (bench.folder / "rank1").exists()


@pytest.mark.parametrize(
    ("rank", "message"),
    [("0", "rank 1 never came"), ("1", "rank 1 could not reach rank 0 at 127.0.0.1:")],
)
def test_missing_peer_is_named(
    bench: Bench, cluster: dict[str, str], rank: str, message: str
) -> None:
    spec = bench.spec("run", train={"peer_timeout_seconds": 1})
    done = bench.run("train", spec, NODE_RANK=rank, **cluster)
    assert done.code == 1
    assert message in done.errors


def test_lost_peer_is_named(bench: Bench, cluster: dict[str, str]) -> None:
    train = {"fail_at_epoch": 2, "fail_rank": 1, "fail_with": "exit:9"}
    specs = [bench.spec(f"rank{rank}", train=train) for rank in (0, 1)]
    other = bench.start("train", specs[1], NODE_RANK="1", **cluster)
    first = bench.run("train", specs[0], NODE_RANK="0", **cluster)
    assert (first.code, bench.finish(other).code) == (1, 9)
    assert "rank 1 closed the connection" in first.errors
    assert "rank 1 closed the connection" in records(bench.folder / "rank0")[-1]["message"]


def test_silent_peer_is_named(bench: Bench, cluster: dict[str, str]) -> None:
    # Rank 0's patience also has to cover the start of rank 1 on a busy machine.
    train = {"fail_at_epoch": 2, "fail_rank": 1, "fail_with": "hang", "peer_timeout_seconds": 4}
    specs = [bench.spec(f"rank{rank}", train=train) for rank in (0, 1)]
    bench.start("train", specs[1], "train.peer_timeout_seconds=60", NODE_RANK="1", **cluster)
    first = bench.run("train", specs[0], NODE_RANK="0", **cluster)
    assert first.code == 1
    assert "rank 1 was silent for 4 s" in first.errors


def test_ranks_with_different_specs_refuse_each_other(
    bench: Bench, cluster: dict[str, str]
) -> None:
    other_spec = bench.spec("rank1", train={"optim": {"lr": 0.01}})
    other = bench.start("train", other_spec, NODE_RANK="1", **cluster)
    first = bench.run("train", bench.spec("rank0"), NODE_RANK="0", **cluster)
    second = bench.finish(other)
    assert (first.code, second.code) == (1, 1)
    assert "rank 1 has another spec or data set than rank 0" in first.errors
    assert "rank 1 has another spec or data set than rank 0" in second.errors


def test_stranger_on_the_port_is_ignored(bench: Bench, cluster: dict[str, str]) -> None:
    first = bench.start("train", bench.spec("rank0"), NODE_RANK="0", **cluster)
    address = (cluster["MASTER_ADDR"], int(cluster["MASTER_PORT"]))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            stranger = socket.create_connection(address, timeout=DEADLINE_SECONDS)
            break
        except OSError:
            assert time.monotonic() < deadline, "rank 0 never listened"
            time.sleep(0.01)
    with stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        second = bench.run("train", bench.spec("rank1"), NODE_RANK="1", **cluster).succeeded()
    done = bench.finish(first).succeeded()
    assert "Ignoring a connection from 127.0.0.1" in done.output
    assert done.weights_digest() == second.weights_digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two' is not a whole number"),
        ({"NODE_RANK": ""}, "NODE_RANK is not set"),
        ({"NODE_RANK": "2"}, "NODE_RANK=2 does not fit WORLD_SIZE=2"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
    ],
)
def test_wrong_environment_is_refused_before_anything_is_written(
    bench: Bench, cluster: dict[str, str], changes: dict[str, str], message: str
) -> None:
    done = bench.run("train", bench.spec("run"), **{**cluster, "NODE_RANK": "0", **changes})
    assert done.code == 2
    assert message in done.errors
    assert not (bench.folder / "run").exists()


# -- torch


def test_torch_backend_is_an_error_without_torch(bench: Bench) -> None:
    # A module that cannot be imported stands where torch would be, installed or not.
    blocked = bench.folder / "blocked"
    blocked.mkdir()
    (blocked / "torch.py").write_text("raise ImportError('no torch in this test')\n")
    path = os.pathsep.join([str(EXAMPLES), str(blocked)])
    done = bench.run("train", bench.spec("run", model={"backend": "torch"}), PYTHONPATH=path)
    assert done.code == 2
    assert "model.backend: torch cannot be imported" in done.errors
    assert not (bench.folder / "run").exists()


def test_torch_backend_agrees_with_numpy(bench: Bench, trained: Path) -> None:
    pytest.importorskip("torch")
    bench.run("train", bench.spec("run", model={"backend": "torch"})).succeeded()
    ours, theirs = (records(folder)[-1]["kpi"] for folder in (trained, bench.folder / "run"))
    assert theirs["val_loss"] == pytest.approx(ours["val_loss"], rel=1e-2)
