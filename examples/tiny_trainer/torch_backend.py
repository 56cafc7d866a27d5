"""The gradients by torch, on a GPU when there is one.

Weights, optimiser, checkpoints and the all-reduce stay with NumPy: a checkpoint of either
backend goes on with the other.
"""

from __future__ import annotations

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from .model import Array, BatchGradients, Labels, LossAndGradients, Weights


def torch_loss_and_gradients(num_gpus: int) -> tuple[str, LossAndGradients]:
    device = torch.device("cuda" if num_gpus and torch.cuda.is_available() else "cpu")

    def loss_and_gradients(weights: Weights, images: Array, labels: Labels) -> BatchGradients:
        tensors = {
            name: torch.tensor(values, device=device, requires_grad=True)
            for name, values in weights.items()
        }
        outputs = torch.tensor(images, device=device)
        layers = len(weights) // 2
        for layer in range(layers):
            outputs = outputs @ tensors[f"layers.{layer}.weight"] + tensors[f"layers.{layer}.bias"]
            if layer < layers - 1:
                outputs = torch.relu(outputs)
        targets = torch.tensor(labels, device=device)
        loss = torch.nn.functional.cross_entropy(outputs, targets, reduction="sum")
        loss.backward()
        gradients = {
            name: tensor.grad.cpu().numpy().astype(np.float32) for name, tensor in tensors.items()
        }
        return BatchGradients(gradients, float(loss.item()), len(labels))

    return f"torch {torch.__version__} on {device.type}", loss_and_gradients
