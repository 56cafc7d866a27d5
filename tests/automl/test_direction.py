"""Whether a metric is to be small or large."""

from __future__ import annotations

import pytest

from tao_sdk.automl.direction import direction_of
from tao_sdk.errors import ValidationError


@pytest.mark.parametrize(
    "metric",
    [
        "loss",
        "val_loss",
        "Validation Loss",
        "train/loss_epoch",
        "wer",
        "dev/CER",
        "perplexity",
        "accuracy_error",
        "latency_ms",
        "valLoss",
    ],
)
def test_less_is_better(metric: str) -> None:
    assert direction_of(metric) == "minimize"


@pytest.mark.parametrize(
    "metric",
    [
        "answer_accuracy",  # contains "wer"
        "sentiment_f1",  # contains "time"
        "cancer_recall",  # contains "cer"
        "soccer_map",
        "apple_ap",  # contains "ppl"
        "mAP50",
        "val_mIoU",
        "top1",
    ],
)
def test_more_is_better_and_parts_of_words_mean_nothing(metric: str) -> None:
    assert direction_of(metric) == "maximize"


def test_an_explicit_word_wins() -> None:
    assert direction_of("loss", "maximize") == "maximize"
    assert direction_of("whatever", "minimise") == "minimize"


@pytest.mark.parametrize("metric", ["kpi", "metric", "x", ""])
def test_a_name_that_does_not_tell_is_an_error(metric: str) -> None:
    with pytest.raises(ValidationError, match="set direction"):
        direction_of(metric)


def test_a_wrong_word_is_an_error() -> None:
    with pytest.raises(ValidationError, match="'downwards'"):
        direction_of("loss", "downwards")
