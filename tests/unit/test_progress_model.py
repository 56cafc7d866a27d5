"""The model itself, and how it is shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_sdk.progress import Progress, render_bar


class TestSummary:
    def test_training(self) -> None:
        progress = Progress(
            stage="running",
            epoch=3,
            epochs=10,
            step=120,
            steps=400,
            loss=0.41234,
            metrics={"lr": 0.05, "accuracy": 0.5, "val_loss": 0.7, "val_acc": 0.91},
            eta_seconds=250,
        )
        assert progress.summary() == (
            "epoch 3/10 · step 120/400 · loss 0.4123 · val_acc 0.91 · 4 min left"
        )

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [
            (0.4, ""),
            (1, "1 s left"),
            (89, "89 s left"),
            (90, "2 min left"),
            (5399, "90 min left"),
            (5400, "2 h left"),
            (36 * 3600, "2 d left"),
        ],
    )
    def test_time_left(self, seconds: float, words: str) -> None:
        assert Progress(eta_seconds=seconds).summary() == words

    @pytest.mark.parametrize(
        ("metrics", "shown"),
        [
            ({"recall": 0.1, "mAP50": 0.2, "val_f1": 0.3}, "val_f1 0.3"),
            ({"recall": 0.1, "mAP50": 0.2}, "mAP50 0.2"),
            ({"box_loss": 1.5, "lr": 0.1}, "box_loss 1.5"),
            ({"lr": 0.1}, "running"),
        ],
    )
    def test_one_metric_is_chosen(self, metrics: dict[str, float], shown: str) -> None:
        assert Progress(stage="running", metrics=metrics).summary() == shown

    @pytest.mark.parametrize(
        ("done", "total", "shown"),
        [
            (5, 10, "5/10 B"),
            (1500, None, "1.5 kB"),
            (1_000_000, 3_400_000_000, "0.001/3.4 GB"),
            (2 * 10**12, 4 * 10**12, "2/4 TB"),
        ],
    )
    def test_sizes(self, done: int, total: int | None, shown: str) -> None:
        progress = Progress(stage="staging", bytes_done=done, bytes_total=total)
        assert progress.summary() == f"staging · {shown}"

    def test_nothing_known(self) -> None:
        assert Progress().summary() == ""


class TestDictionary:
    def test_keys_in_a_fixed_order(self) -> None:
        assert list(Progress().to_dict()) == [
            "stage",
            "epoch",
            "epochs",
            "step",
            "steps",
            "loss",
            "metrics",
            "not_finite",
            "rate",
            "rate_unit",
            "fraction",
            "eta_seconds",
            "bytes_done",
            "bytes_total",
            "files_done",
            "files_total",
            "message",
            "updated_at",
        ]

    def test_the_same_text_whatever_the_order_of_metrics(self) -> None:
        one = Progress(metrics={"a": 1.0, "b": 2.0})
        other = Progress(metrics={"b": 2.0, "a": 1.0})
        assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())

    def test_it_is_a_copy(self) -> None:
        progress = Progress(metrics={"a": 1.0})
        progress.to_dict()["metrics"]["a"] = 2.0
        assert progress.metrics == {"a": 1.0}


class TestBar:
    @pytest.mark.parametrize(
        ("fraction", "bar"),
        [
            (0.0, "----------   0%"),
            (0.45, "####------  45%"),
            (0.999, "#########-  99%"),
            (1.0, "########## 100%"),
            (None, "..........   ?%"),
        ],
    )
    def test_ascii(self, fraction: float | None, bar: str) -> None:
        assert render_bar(Progress(fraction=fraction), 15, ascii_only=True) == bar

    def test_blocks(self) -> None:
        assert render_bar(Progress(fraction=0.5), 15) == "█████░░░░░  50%"

    @pytest.mark.parametrize(
        ("width", "bar"), [(7, "#-  50%"), (5, "  50%"), (4, " 50%"), (3, "50%"), (0, "50%")]
    )
    def test_narrow(self, width: int, bar: str) -> None:
        assert render_bar(Progress(fraction=0.5), width, ascii_only=True) == bar

    @given(st.none() | st.floats(0, 1), st.integers(5, 300), st.booleans())
    def test_width(self, fraction: float | None, width: int, ascii_only: bool) -> None:
        bar = render_bar(Progress(fraction=fraction), width, ascii_only=ascii_only)
        assert len(bar) == width
        assert bar.isascii() or not ascii_only
        assert bar.endswith("100%") == (fraction == 1)
