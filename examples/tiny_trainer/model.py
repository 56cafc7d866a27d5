"""A multilayer perceptron as plain functions over a dictionary of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import SpecError

Array = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Weights = dict[str, Array]


@dataclass(frozen=True)
class BatchGradients:
    """Sums, not means, over a batch: they add up across ranks whatever each rank's share."""

    gradients: Weights
    loss_sum: float
    count: int


LossAndGradients = Callable[[Weights, Array, Labels], BatchGradients]


def initial_weights(layer_sizes: Sequence[int], rng: np.random.Generator) -> Weights:
    """He initialisation, biases at zero."""
    weights: Weights = {}
    for layer in range(len(layer_sizes) - 1):
        inputs, outputs = layer_sizes[layer], layer_sizes[layer + 1]
        spread = np.sqrt(2.0 / inputs)
        weights[f"layers.{layer}.weight"] = rng.normal(0.0, spread, (inputs, outputs)).astype(
            np.float32
        )
        weights[f"layers.{layer}.bias"] = np.zeros(outputs, dtype=np.float32)
    return weights


def layer_sizes(weights: Mapping[str, Array]) -> list[int]:
    """The sizes that `initial_weights` was given."""
    matrices = [weights[f"layers.{layer}.weight"] for layer in range(len(weights) // 2)]
    return [matrices[0].shape[0], *(matrix.shape[1] for matrix in matrices)]


def logits(weights: Mapping[str, Array], images: Array) -> Array:
    """The scores of every class for every image."""
    return _activations(weights, images)[-1]


def probabilities(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    normalised: Array = exponentials / exponentials.sum(axis=1, keepdims=True)
    return normalised


def mean_loss_and_accuracy(
    weights: Mapping[str, Array], images: Array, labels: Labels
) -> tuple[float, float]:
    scores = logits(weights, images)
    loss = _cross_entropy_sum(probabilities(scores), labels) / len(labels)
    return loss, float(np.mean(scores.argmax(axis=1) == labels))


def numpy_loss_and_gradients(weights: Weights, images: Array, labels: Labels) -> BatchGradients:
    """Cross-entropy and its gradients, by back-propagation."""
    activations = _activations(weights, images)
    chance = probabilities(activations[-1]) if len(labels) else activations[-1]
    loss_sum = _cross_entropy_sum(chance, labels)
    delta = chance.copy()
    delta[np.arange(len(labels)), labels] -= 1.0
    gradients: Weights = {}
    for layer in reversed(range(len(weights) // 2)):
        gradients[f"layers.{layer}.weight"] = activations[layer].T @ delta
        gradients[f"layers.{layer}.bias"] = delta.sum(axis=0)
        if layer:
            delta = (delta @ weights[f"layers.{layer}.weight"].T) * (activations[layer] > 0)
    return BatchGradients(gradients, loss_sum, len(labels))


def choose_backend(name: str, num_gpus: int) -> tuple[str, LossAndGradients]:
    """What computes the gradients: NumPy unless torch is asked for by name."""
    if name != "torch":
        return "numpy", numpy_loss_and_gradients
    try:
        from .torch_backend import torch_loss_and_gradients
    except ImportError as error:
        raise SpecError(
            f"model.backend: torch cannot be imported ({error}); install it or say numpy"
        ) from error
    return torch_loss_and_gradients(num_gpus)


def _activations(weights: Mapping[str, Array], images: Array) -> list[Array]:
    """The input, then the output of every layer; the last one before any non-linearity."""
    layers = len(weights) // 2
    outputs = [images]
    for layer in range(layers):
        values = outputs[-1] @ weights[f"layers.{layer}.weight"] + weights[f"layers.{layer}.bias"]
        outputs.append(np.maximum(values, np.float32(0)) if layer < layers - 1 else values)
    return outputs


def _cross_entropy_sum(chance: Array, labels: Labels) -> float:
    of_label = chance[np.arange(len(labels)), labels].astype(np.float64)
    return float(-np.log(np.maximum(of_label, 1e-30)).sum())
