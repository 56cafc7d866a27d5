"""Progress read from any text: sound, never backwards, in time."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_sdk.progress import TRANSFER_PREFIX, Progress, ProgressReader

SAMPLES = Path(__file__).parent / "progress_samples"
START = 1_700_000_000.0

_PARTS = st.sampled_from(
    [
        *("Epoch", "epoch", "step", "iter", "loss", "nan", "lr", "[", "]", "(", ")", "/", "|"),
        *(":", "=", "-", "%", "%|", "it/s", "s/it", "\r", "\x08", "\x1b[A", "━", "█", "•", "<"),
        *("eta: 0:01:00", "ETA: 5s", "{'", '{"', "'}", '"status"', '"RUNNING"', "epoch=", ", "),
        *("0", "1", "7", "10", "999999999999", "0.5", "1e-3", "1e999", "9" * 400, "Unknown"),
        *("tao-progress: ", '{"stage":"staging","bytes_done":', "}", "all ", "GPU_mem", "Class "),
        *("`Trainer.fit` stopped: `max_epochs=10` reached", "Num Epochs = 3", "Training epoch 1"),
        *(", iteration 3/9 |", "v_num=", "Testing ", "Validation ", " ", "  ", "\t", "é", "\udc80"),
    ]
)
_TEXT = st.one_of(st.text(max_size=200), st.lists(_PARTS, max_size=30).map("".join))
_TIMES = st.one_of(st.none(), st.floats(), st.floats(min_value=0, max_value=1e10))
_SAMPLE_LINES = [
    line
    for path in sorted(SAMPLES.glob("*"))
    for line in path.read_bytes().decode().split("\n")
    if line
]


def assert_sound(progress: Progress) -> None:
    """What holds for every progress, whatever it was read from."""
    text = json.dumps(progress.to_dict(), allow_nan=False)
    assert json.loads(text) == progress.to_dict()
    assert progress.stage in ("", "staging", "running", "delivering")
    assert progress.fraction is None or 0 <= progress.fraction <= 1
    for name in ("epoch", "epochs", "step", "steps", "eta_seconds", "rate", "bytes_done"):
        value = getattr(progress, name)
        assert value is None or value >= 0
    assert progress.epochs is None or progress.epoch is None or progress.epoch <= progress.epochs
    assert progress.epoch != 0
    assert "\n" not in progress.summary()
    assert set(progress.to_dict()) == {field.name for field in fields(Progress)}


@given(st.lists(st.tuples(_TEXT, _TIMES), max_size=8))
@settings(max_examples=300, deadline=None)
def test_any_text(lines: list[tuple[str, float | None]]) -> None:
    reader = ProgressReader()
    for line, at in lines:
        before = reader.progress
        changed = reader.feed(line, at=at) | reader.feed_status_line(line, at=at)
        assert changed or reader.progress == before
        assert_sound(reader.progress)


@given(st.lists(st.sampled_from(_SAMPLE_LINES), max_size=12), st.data())
@settings(max_examples=200, deadline=None)
def test_any_mixture_of_real_lines_torn_anywhere(lines: list[str], data: st.DataObject) -> None:
    reader = ProgressReader()
    for number, line in enumerate(lines):
        end = data.draw(st.integers(0, len(line)))
        reader.feed(line[:end], at=START + number)
        reader.feed_status_line(line[:end], at=START + number)
        assert_sound(reader.progress)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=6,
    ),
    st.sampled_from(
        ["epoch", "max_epoch", "step", "max_step", "eta", "time_per_epoch", "kpi", "message"]
    ),
    st.sampled_from(["STARTED", "RUNNING", "SUCCESS", "FAILURE"]),
)
@settings(max_examples=300, deadline=None)
def test_any_value_in_a_record(value: object, key: str, status: str) -> None:
    record = {"status": status, "epoch": 2, "max_epoch": 4, "eta": "0:10", "time_per_epoch": "5s"}
    reader = ProgressReader()
    reader.feed_status_line(json.dumps({**record, key: value}), at=START)
    transfer = {"stage": "staging", key: value, "bytes_done": value}
    reader.feed(TRANSFER_PREFIX + json.dumps(transfer), at=START)
    assert_sound(reader.progress)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 99)), min_size=1, max_size=9),
    st.sampled_from(["Epoch [{0}/9], Step [{1}/99], Loss: 0.5", "Epoch {0}/9: loss=0.5"]),
)
def test_never_backwards(positions: list[tuple[int, int]], shape: str) -> None:
    """Fewer than ten lines: too few to be a restart."""
    reader = ProgressReader()
    highest = 0.0
    for epoch, step in positions:
        reader.feed(shape.format(epoch, step))
        fraction = reader.progress.fraction
        assert fraction is not None
        assert fraction >= highest
        highest = fraction


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "1", "=", "a=", "Epoch 1", "Epoch 1/", "1/1 ", "[1/", "━", "45%|", "{'a': 1, "),
        *("loss ", "learning rate ", "\r", "\x08", "\x1b[", "it/s", "it/s]x", "step 1/2 ", " "),
        *(
            "tao-progress: {",
            '{"status":',
            "[[[[",
            "e9",
            "1/1 1G 1 1 1 ",
            "Epoch 0/2 ━",
            "*** JOB ",
        ),
    ],
)
def test_long_lines_are_read_in_time(unit: str) -> None:
    """A pattern that backtracks would take hours over these; the suite's timeout ends it."""
    reader = ProgressReader()
    reader.feed((unit * 2_000_000)[:2_000_000], at=START)
    reader.feed_status_line((unit * 1_000_000)[:1_000_000], at=START)
    assert_sound(reader.progress)
