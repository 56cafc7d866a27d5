"""What is done with a trained model, and writing the data set: evaluate, export, inference."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from . import checkpoint, data
from .checkpoint import TrainState
from .data import CLASSES, DataSet
from .errors import CheckpointError, TrainerError
from .files import write_whole
from .model import Array, Weights, layer_sizes, logits, mean_loss_and_accuracy, probabilities
from .spec import Spec
from .status import StatusLog


def evaluate(spec: Spec, folder: Path) -> None:
    """Accuracy and loss on the validation split, into metrics.json."""
    with StatusLog(folder, "evaluate") as status:
        state, data_set = _model_and_data(spec, spec.evaluate.checkpoint, "evaluate.checkpoint")
        images, labels = data_set.split("val")
        loss, accuracy = mean_loss_and_accuracy(state.weights, images, labels)
        status.final_kpi = {"accuracy": accuracy, "loss": loss}
        right = logits(state.weights, images).argmax(axis=1) == labels
        report = {
            **status.final_kpi,
            "per_class_accuracy": {
                name: float(right[labels == label].mean())
                for label, name in enumerate(CLASSES)
                if (labels == label).any()
            },
            "num_images": len(labels),
            "epoch": state.epoch,
            "checkpoint": spec.evaluate.checkpoint,
        }
        _write_json(folder / "metrics.json", report)
        print(f"Evaluation of {len(labels)} images: accuracy={accuracy:.4f} loss={loss:.4f}")


def inference(spec: Spec, folder: Path) -> None:
    """Predict the validation split, one line per image."""
    with StatusLog(folder, "inference"):
        state, data_set = _model_and_data(spec, spec.inference.checkpoint, "inference.checkpoint")
        images, labels = data_set.split("val")
        chances = probabilities(logits(state.weights, images))
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["image", "prediction", "confidence", "label"])
        for row, image in enumerate(data_set.indices("val")):
            best = int(chances[row].argmax())
            confidence = f"{chances[row, best]:.4f}"
            writer.writerow([image, CLASSES[best], confidence, CLASSES[labels[row]]])
        path = folder / spec.inference.output_file
        write_whole(path, lambda file: file.write(table.getvalue().encode()))
        print(f"Wrote {len(labels)} predictions to {path}")


def export(spec: Spec, folder: Path) -> None:
    """The weights without the optimiser, and a graph that says how to use them."""
    with StatusLog(folder, "export"):
        state, data_set = _model_and_data(spec, spec.export.checkpoint, "export.checkpoint")
        path = folder / spec.export.output_file
        graph_path = path.with_suffix(".json")
        weights = checkpoint.encode_tensors(state.weights, {"format": "np"})
        write_whole(path, lambda file: file.write(weights))
        _write_json(graph_path, _graph(state.weights, path.name))
        difference = _reload_difference(graph_path, state.weights, data_set.split("val")[0])
        if not difference <= 1e-6:
            raise TrainerError(f"the exported model differs from the checkpoint by {difference}")
        print(f"Exported to {path} and {graph_path}; reloaded and checked on validation images")


def write_data_set(spec: Spec, folder: Path) -> None:
    """Generate the data set into the results folder, for use as `dataset.path`."""
    with StatusLog(folder, "dataset"):
        data_set = data.generate(spec.dataset)
        data.write_folder(data_set, folder)
        print(f"Wrote {len(data_set.labels)} images to {folder}")


def run_graph(graph: dict[str, Any], weights: Weights, images: Array) -> Array:
    """All that a user of an exported model needs."""
    values = images
    for node in graph["nodes"]:
        if node["op"] == "linear":
            values = values @ weights[node["weight"]] + weights[node["bias"]]
        elif node["op"] == "relu":
            values = np.maximum(values, np.float32(0))
        elif node["op"] == "softmax":
            values = probabilities(values)
        else:
            raise TrainerError(f"the graph has a node of unknown kind {node['op']!r}")
    return values


def _graph(weights: Weights, weights_file: str) -> dict[str, Any]:
    sizes = layer_sizes(weights)
    nodes: list[dict[str, str]] = []
    for layer in range(len(sizes) - 1):
        if layer:
            nodes.append({"op": "relu"})
        names = {"weight": f"layers.{layer}.weight", "bias": f"layers.{layer}.bias"}
        nodes.append({"op": "linear", **names})
    nodes.append({"op": "softmax"})
    return {
        "weights_file": weights_file,
        "input": {"shape": ["batch", sizes[0]], "dtype": "float32", "values": "grey / 255 - 0.5"},
        "nodes": nodes,
        "output": {"shape": ["batch", sizes[-1]], "classes": list(CLASSES)},
    }


def _reload_difference(graph_path: Path, weights: Weights, images: Array) -> float:
    graph = json.loads(graph_path.read_text(encoding="utf-8"))
    content = (graph_path.parent / graph["weights_file"]).read_bytes()
    reloaded, _ = checkpoint.decode_tensors(content)
    expected = probabilities(logits(weights, images))
    return float(np.abs(run_graph(graph, reloaded, images) - expected).max())


def _model_and_data(spec: Spec, path: str, key: str) -> tuple[TrainState, DataSet]:
    state = checkpoint.load(Path(path), key)
    data_set = data.load(spec.dataset)
    inputs = layer_sizes(state.weights)[0]
    if inputs != data_set.image_size**2:
        raise CheckpointError(
            f"{key}: {path} takes images of {inputs} pixels, the data set has "
            f"{data_set.image_size}x{data_set.image_size}: see dataset.image_size"
        )
    return state, data_set


def _write_json(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))
