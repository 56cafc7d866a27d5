"""Progress read from TAO's status.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_sdk.progress import Progress, ProgressReader

SAMPLES = Path(__file__).parent / "progress_samples"


def trail_of(sample: str) -> list[Progress]:
    """Every progress that differed from the one before."""
    reader = ProgressReader()
    lines = (SAMPLES / sample).read_text(encoding="utf-8").splitlines()
    return [reader.progress for line in lines if reader.feed_status_line(line)]


def test_tao() -> None:
    trail = trail_of("tao_status.json")
    assert [progress.fraction for progress in trail] == [None, 0.083333, 0.083333, 0.166667]
    last = trail[-1]
    assert last.summary() == "epoch 2/12 · loss 6.4 · val_mAP 0.14 · 10 min left"
    assert last.metrics["learning_rate"] == 0.0002
    assert trail[2].message == "Train and Val metrics generated."


def test_demo_trainer_to_its_end() -> None:
    trail = trail_of("tiny_trainer_status.json")
    assert [progress.epoch for progress in trail] == [None, 1, 2, 3, 4, 5]
    fractions = [progress.fraction for progress in trail[1:]]
    assert fractions == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0], abs=1e-4)
    assert trail[-1].eta_seconds == 0


def test_an_epoch_at_work_is_not_counted_as_done() -> None:
    """cosmos-rl names the epoch it is in; the time left tells how much of it is done."""
    trail = trail_of("cosmos_status.json")
    assert (trail[1].epoch, trail[1].fraction, trail[1].eta_seconds) == (2, 0.375, 1500)
    assert trail[1].loss == 0.5123
    assert trail[1].metrics == {"train/loss_avg": 0.5123, "train/learning_rate": 1e-05}
    assert trail[-1].loss == 0.5123


def test_without_an_estimate_no_more_than_certain() -> None:
    reader = ProgressReader()
    reader.feed_status_line('{"status": "RUNNING", "epoch": 3, "max_epoch": 4}')
    assert reader.progress.fraction == 0.5


def test_steps() -> None:
    reader = ProgressReader()
    reader.feed_status_line('{"status": "RUNNING", "step": 30, "max_step": 40, "eta": "1:00"}')
    progress = reader.progress
    assert (progress.step, progress.steps, progress.fraction) == (30, 40, 0.75)
    assert progress.eta_seconds == 60


def test_success_is_the_end_whatever_the_epoch() -> None:
    reader = ProgressReader()
    reader.feed_status_line('{"status": "RUNNING", "epoch": 3, "max_epoch": 10}')
    reader.feed_status_line('{"status": "SUCCESS", "message": "Stopped early."}')
    assert (reader.progress.epoch, reader.progress.fraction) == (3, 1.0)


def test_failure_ends_the_estimate_and_keeps_the_place() -> None:
    reader = ProgressReader()
    reader.feed_status_line('{"status": "RUNNING", "epoch": 3, "max_epoch": 10, "eta": "1:00"}')
    reader.feed_status_line('{"status": "FAILURE", "message": "out of memory"}')
    assert (reader.progress.epoch, reader.progress.eta_seconds) == (3, None)
    assert reader.progress.message == "out of memory"


def test_printed_into_the_log() -> None:
    reader = ProgressReader()
    assert reader.feed('{"status": "RUNNING", "epoch": 3, "max_epoch": 4}')
    assert reader.progress.epoch == 3


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "null",
        '{"status": "RUNNING", "epoch": 1',
        '{"status": "Running", "epoch": 1}',
        '{"epoch": 1}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_what_is_no_record(line: str) -> None:
    reader = ProgressReader()
    assert reader.feed_status_line(line) is False
    assert reader.progress == Progress()


@pytest.mark.parametrize(
    "value", ["true", '"3"', "3.5", "-1", "NaN", "1e400", "[3]", "{}", "9" * 400]
)
def test_an_epoch_that_is_no_number_of_epochs(value: str) -> None:
    reader = ProgressReader()
    reader.feed_status_line(f'{{"status": "RUNNING", "epoch": {value}, "max_epoch": 4}}')
    assert reader.progress.epoch in (None, 3)
