"""The value of a metric, from lines of a log."""

from __future__ import annotations

import math

import pytest

from tao_sdk.automl.metrics import MetricReader


def read(metric: str, *lines: str) -> float | None:
    reader = MetricReader([metric])
    for line in lines:
        reader.feed(line)
    return reader.values.get(metric)


@pytest.mark.parametrize(
    ("metric", "line", "value"),
    [
        ("val_loss", "Epoch 3/5 - loss: 1.0 - val_loss: 2.5", 2.5),
        ("val_loss", "Validation loss: 0.25", 0.25),
        ("val_loss", "[SFT] Validation loss: 1e-3, step 5", 1e-3),
        ("val_loss", "{'val/loss': 0.5}", 0.5),
        ("val_loss", "val_loss_epoch=0.75", 0.75),
        ("val_loss_epoch", "val_loss: 4", 4.0),
        ("validation/loss", "val_loss: 4", 4.0),
        ("loss", "Epoch 3 loss: 1.5 val_loss: 9", 1.5),
        ("loss", "train step 5 | loss=2", 2.0),
        ("mAP", "mAP = 0.41 mAP_50 = 0.6", 0.41),
        ("loss", "training loss: 0.5, box loss: 0.1", 0.5),
        ("loss", "loss: 1,234.5", 1234.5),
        ("loss", "The final loss: 0.5.", 0.5),
        ("loss", "\x1b[32mloss\x1b[0m: \x1b[1m0.25\x1b[0m", 0.25),
        ("accuracy", "Evaluation of 800 images: accuracy=0.9525 loss=0.1615", 0.9525),
        ("accuracy", 'kpi: {"accuracy": 0.5}', 0.5),
    ],
)
def test_spellings(metric: str, line: str, value: float) -> None:
    assert read(metric, line) == value


@pytest.mark.parametrize(
    ("metric", "line"),
    [
        ("loss", "val_loss: 2.5"),
        ("loss", "Validation loss: 2.5"),
        ("loss", "val/loss=2.5 test loss: 3"),
        ("loss", "box loss: 0.1 l2 loss: 0.001"),
        ("acc", "top5 acc: 0.9"),
        ("mAP", "mAP_50: 0.6"),
        ("acc", "accuracy: 0.6"),
        ("loss", "loss: low"),
        ("loss", "loss: 1.2.3"),
    ],
)
def test_other_metrics_are_not_taken_for_it(metric: str, line: str) -> None:
    assert read(metric, line) is None


def test_the_last_value_counts() -> None:
    assert read("loss", "loss: 3 loss: 2", "something else", "loss: 1") == 1.0


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "NaN"])
def test_what_is_no_number_is_not_hidden_by_what_was_one(text: str) -> None:
    reader = MetricReader(["loss"])
    reader.feed("loss: 3")
    assert not reader.diverged
    reader.feed(f"loss: {text}")
    assert reader.diverged
    assert not math.isfinite(reader.values["loss"])


def test_it_says_which_names_it_saw() -> None:
    reader = MetricReader(["kpi"])
    reader.feed("Epoch 1: train_loss=0.5 val/acc: 0.25")
    assert {"train_loss", "val/acc"} <= set(reader.names)


def test_a_hostile_line_takes_no_time() -> None:
    assert read("loss", "loss" * 100_000 + " " * 100_000 + "=" * 100_000) is None
