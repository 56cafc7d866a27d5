"""What adds up to progress: monotony, restarts, stages, estimates."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tao_sdk.progress import TRANSFER_PREFIX, Progress, ProgressReader

SAMPLES = Path(__file__).parent / "progress_samples"
START = 1_700_000_000.0


def fed(*lines: str) -> ProgressReader:
    reader = ProgressReader()
    for line in lines:
        reader.feed(line)
    return reader


def transfer(**record: object) -> str:
    return TRANSFER_PREFIX + json.dumps(record, separators=(",", ":"))


def bar(epoch: int, step: int) -> str:
    return f"Epoch {epoch}:  {step}%|█    | {step}/100 [00:31<00:38,  3.80it/s, v_num=1]"


class TestChange:
    def test_only_what_changes_something_is_reported(self) -> None:
        reader = ProgressReader()
        assert reader.feed("Epoch 1/5: loss=0.5") is True
        assert reader.feed("Epoch 1/5: loss=0.5") is False
        assert reader.feed("nothing of interest") is False
        assert reader.feed("Epoch 2/5: loss=0.5") is True

    def test_a_snapshot_stays_as_it_was(self) -> None:
        reader = fed("Epoch 1/5: loss=0.5")
        before = reader.progress
        reader.feed("Epoch 2/5: loss=0.4 val_acc=0.9")
        assert (before.epoch, before.metrics) == (1, {"loss": 0.5})

    def test_time_of_the_last_change(self) -> None:
        reader = ProgressReader()
        reader.feed("Epoch 1/5: loss=0.5", at=0)
        reader.feed("nothing of interest", at=60)
        assert reader.progress.updated_at == "1970-01-01T00:00:00+00:00"

    @pytest.mark.parametrize("at", [None, math.nan, math.inf, -1.0, 1e20])
    def test_no_usable_time(self, at: float | None) -> None:
        reader = ProgressReader()
        assert reader.feed("Epoch 1/5: loss=0.5", at=at)
        assert reader.progress.updated_at == ""

    def test_message_is_one_short_clean_line(self) -> None:
        reader = fed("\x1b[32mEpoch 1/5:\x1b[0m\tloss=0.5 \x07\udc80" + "x" * 500)
        assert reader.progress.message.startswith("Epoch 1/5: loss=0.5")
        assert len(reader.progress.message) == 160
        assert reader.progress.message.isprintable()


class TestMonotony:
    @pytest.mark.parametrize(
        "later",
        [
            "Epoch 2/10: train_loss=0.9",
            "epoch 1 val_acc=0.1",
            "Epoch 1/10",
            "| epoch 3 | val_loss=0.8 |",
            "Epoch [3/10], Step [50/100], Loss: 0.9",
            "Epoch 0, global step 20: 'val_acc' reached 0.10000 (best 0.9)",
            "{'loss': 0.9, 'epoch': 1.27}",
        ],
    )
    def test_an_earlier_epoch_changes_nothing(self, later: str) -> None:
        reader = fed("Epoch 7/10: train_loss=0.3")
        before = reader.progress
        assert reader.feed(later) is False
        assert reader.progress == before

    def test_a_table_of_all_epochs_at_the_end(self) -> None:
        reader = fed("Epoch 30/30: train_loss=0.3")
        before = reader.progress
        for epoch in range(1, 30):
            reader.feed(f"epoch {epoch}: val_loss={epoch}")
        assert reader.progress == before

    def test_a_nested_loop_of_another_length(self) -> None:
        reader = fed("step 500/4000 loss=0.4", *(f"step {n}/50 loss=9.9" for n in range(50)))
        assert (reader.progress.step, reader.progress.steps) == (500, 4000)
        assert reader.progress.loss == 0.4

    def test_a_nested_loop_that_is_further_on(self) -> None:
        reader = fed("step 10/4000 loss=0.4", *(f"step {n}/50 loss=9.9" for n in range(50)))
        assert (reader.progress.step, reader.progress.steps) == (10, 4000)

    def test_an_earlier_part_of_the_epoch(self) -> None:
        reader = fed("{'loss': 0.4, 'epoch': 1.9}", "{'loss': 0.9, 'epoch': 1.2}")
        assert reader.progress.loss == 0.4

    def test_an_epoch_reported_done_stays_done(self) -> None:
        reader = ProgressReader()
        record = {"status": "RUNNING", "epoch": 4, "max_epoch": 10}
        times = {"eta": "0:06:00", "time_per_epoch": "0:01:00"}
        reader.feed_status_line(json.dumps({**record, **times}))
        reader.feed(bar(3, 50))
        assert (reader.progress.step, reader.progress.fraction) == (50, 0.4)

    def test_steps_of_the_run_do_not_replace_those_of_the_epoch(self) -> None:
        reader = fed(bar(2, 10), "[Rank 0] step=532, skipped=0, lr=[1e-4], mom=[0.9]")
        assert (reader.progress.step, reader.progress.steps) == (10, 100)
        assert reader.progress.metrics == {"lr": 1e-4}

    def test_a_bar_after_the_epoch_is_not_of_it(self) -> None:
        reader = fed("Epoch 1/3", "Epoch 1/3: loss=0.5", " 50%|█████     | 5/10 [00:01<00:01]")
        assert (reader.progress.epoch, reader.progress.step) == (1, None)

    def test_a_rank_far_behind(self) -> None:
        reader = ProgressReader()
        for n in range(100):
            reader.feed(f"step {1000 + n}/4000 loss=0.5")
            reader.feed(f"step {500 + n}/4000 loss=0.5")
            assert reader.progress.step == 1000 + n

    def test_ranks_that_lag_behind(self) -> None:
        reader = fed(*(f"step {n - rank}/100 loss=0.5" for n in range(5, 90) for rank in range(4)))
        assert reader.progress.step == 89

    def test_status_json_of_a_resumed_run_counts_anew_but_its_metrics_are_new(self) -> None:
        reader = fed(bar(5, 10))
        reader.feed_status_line('{"status": "RUNNING", "epoch": 1, "kpi": {"val_acc": 0.7}}')
        assert reader.progress.epoch == 6
        assert reader.progress.metrics == {"val_acc": 0.7}

    def test_a_total_that_is_too_small_is_no_total(self) -> None:
        reader = fed("  Num Epochs = 3", "{'loss': 0.4, 'epoch': 7.5}")
        assert (reader.progress.epoch, reader.progress.epochs) == (8, None)
        assert reader.progress.fraction is None

    def test_epochs_from_zero_to_the_last(self) -> None:
        reader = ProgressReader()
        seen = []
        for epoch in range(3):
            reader.feed(f"Epoch {epoch}/2: loss=0.5")
            seen.append((reader.progress.epoch, reader.progress.epochs))
        assert seen[-1] == (3, 3)
        assert [epoch for epoch, _ in seen] == [1, 2, 3]


class TestRestart:
    def test_by_the_caller(self) -> None:
        reader = fed("Epoch 7/10: train_loss=0.3")
        reader.restart()
        assert reader.progress == Progress()
        reader.feed("Epoch 2/10: train_loss=0.9")
        assert reader.progress.epoch == 2

    def test_second_start_in_status_json(self) -> None:
        reader = ProgressReader()
        for line in (
            '{"status": "STARTED"}',
            '{"status": "STARTED"}',
            '{"status": "RUNNING", "epoch": 7, "max_epoch": 10}',
            '{"status": "FAILURE"}',
            '{"status": "STARTED"}',
            '{"status": "RUNNING", "epoch": 1, "max_epoch": 10}',
        ):
            reader.feed_status_line(line)
        assert reader.progress.epoch == 1

    def test_the_first_starts_do_not_wipe_out_the_log(self) -> None:
        reader = fed(bar(2, 10))
        reader.feed_status_line('{"status": "STARTED"}')
        reader.feed_status_line('{"status": "STARTED"}')
        assert reader.progress.epoch == 3

    @pytest.mark.parametrize(
        "marker",
        [
            "slurmstepd: error: *** JOB 42 ON node7 CANCELLED AT 2025-01-01T10:00:00 DUE TO "
            "PREEMPTION ***",
            "slurmstepd: error: *** STEP 42.0 ON node7 CANCELLED AT 2025-01-01T10:00:00 DUE TO "
            "JOB REQUEUE ***",
            "INFO:torch.distributed.elastic.agent.server.api:[default] Restarting worker group",
        ],
    )
    def test_announced_in_the_log(self, marker: str) -> None:
        reader = fed("Epoch 7/10: train_loss=0.3", marker)
        assert reader.progress.epoch == 7  # if it does not go on, that is how far it came
        reader.feed("Epoch 2/10: train_loss=0.9")
        assert (reader.progress.epoch, reader.progress.loss) == (2, 0.9)

    def test_announced_in_the_log_and_gone_on_from_a_checkpoint(self) -> None:
        reader = fed("Epoch 7/10: loss=0.3", "Restarting worker group", "Epoch 8/10: loss=0.2")
        assert reader.progress.epoch == 8
        reader.feed("epoch 2: val_loss=0.9")
        assert reader.progress.epoch == 8

    def test_no_estimate_for_an_interrupted_run(self) -> None:
        reader = fed("Iter(train) [10/100]  eta: 0:01:40  loss: 0.5")
        assert reader.feed("Restarting worker group") is True
        assert reader.progress.eta_seconds is None
        assert reader.progress.message == "Restarting worker group"

    def test_the_end_of_a_job_is_no_restart(self) -> None:
        reader = fed("Epoch 7/10: train_loss=0.3")
        reader.feed(
            "slurmstepd: error: *** JOB 42 ON n CANCELLED AT 2025-01-01T10:00:00 DUE TO TIME LIMIT"
        )
        assert reader.progress.epoch == 7

    def test_steps_gone_through_once_more(self) -> None:
        reader = fed(bar(7, 50))
        for step in range(9):
            reader.feed(bar(0, step))
        assert reader.progress.epoch == 8
        for step in range(9, 12):
            reader.feed(bar(0, step))
        assert (reader.progress.epoch, reader.progress.step) == (1, 11)

    def test_steps_gone_through_once_more_by_all_ranks(self) -> None:
        again = [f"step {n}/4000 loss=0.9" for n in range(1, 12) for _ in range(4)]
        assert fed("step 3000/4000 loss=0.3", *again).progress.step == 11

    def test_steps_back_and_forth_are_no_restart(self) -> None:
        reader = fed(
            "step 3000/4000 loss=0.3", *(["step 1/4000 loss=9", "step 2/4000 loss=9"] * 20)
        )
        assert reader.progress.step == 3000

    def test_epochs_announced_once_more(self) -> None:
        bars = [f"{step}/400 [===>...] - ETA: 1:02 - loss: 0.41" for step in range(1, 20)]
        reader = fed("Epoch 7/10", *bars, "Epoch 1/10", *bars)
        progress = reader.progress
        assert (progress.epoch, progress.epochs, progress.step) == (1, 10, 19)

    def test_new_attempt_of_the_runner(self) -> None:
        reader = fed(
            transfer(stage="running", attempt=1),
            "Epoch 7/10: train_loss=0.3",
            transfer(stage="running", attempt=2),
        )
        assert (reader.progress.stage, reader.progress.epoch) == ("running", None)

    def test_late_words_of_an_old_attempt(self) -> None:
        reader = fed(
            transfer(stage="running", attempt=2),
            "Epoch 7/10: train_loss=0.3",
            transfer(stage="delivering", attempt=1, bytes_done=1),
        )
        assert (reader.progress.stage, reader.progress.epoch) == ("running", 7)

    def test_staging_after_the_run_began(self) -> None:
        reader = fed("Epoch 7/10: train_loss=0.3", transfer(stage="staging", files_done=1))
        assert (reader.progress.stage, reader.progress.epoch) == ("staging", None)


class TestStages:
    def test_whole_job(self) -> None:
        reader = ProgressReader()
        trail = []
        for line in (SAMPLES / "transfers.log").read_text(encoding="utf-8").splitlines():
            reader.feed(line)
            trail.append((reader.progress.stage, reader.progress.fraction))
        assert trail == [
            ("staging", 0.0),
            ("staging", 0.25),
            ("running", None),
            ("running", 0.5),
            ("running", 0.5),
            ("running", 1.0),
            ("delivering", 0.25),
        ]
        progress = reader.progress
        assert progress.summary() == "delivering · 5/20 MB · 1/3 files · 5 MB/s · 3 s left"
        assert (progress.bytes_done, progress.bytes_total) == (5_000_000, 20_000_000)
        assert (progress.files_done, progress.files_total) == (1, 3)
        # What the training came to stays known while its results travel.
        assert (progress.epoch, progress.loss) == (2, 0.7)

    def test_a_signature_is_not_shown(self) -> None:
        reader = fed(transfer(stage="staging", bytes_done=1, uri="https://h/f?X-Amz-Signature=abc"))
        assert reader.progress.message == "https://h/f"

    def test_background_delivery_does_not_hide_the_training(self) -> None:
        reader = fed("step 10/40 loss=0.5", transfer(stage="running", bytes_done=7, bytes_total=9))
        assert (reader.progress.fraction, reader.progress.bytes_done) == (0.25, 7)
        assert reader.progress.summary() == "step 10/40 · loss 0.5"

    def test_late_output_of_the_training_does_not_hide_the_delivery(self) -> None:
        delivery = transfer(stage="delivering", bytes_done=5, bytes_total=10, rate=1)
        reader = fed("step 39/40 loss=0.5", delivery, "step 40/40 loss=0.4 eta: 1:00:00")
        progress = reader.progress
        assert (progress.stage, progress.fraction, progress.eta_seconds) == ("delivering", 0.5, 5)
        assert progress.loss == 0.4

    def test_training_ends_the_staging(self) -> None:
        reader = fed(transfer(stage="staging", bytes_done=5, bytes_total=10), "step 1/4 loss=0.5")
        progress = reader.progress
        assert (progress.stage, progress.fraction, progress.bytes_done) == ("running", 0.25, None)

    def test_bars_of_the_downloads_are_not_the_training(self) -> None:
        reader = fed(
            transfer(stage="staging", bytes_done=5, bytes_total=10),
            " 30%|███       | 3/10 [00:01<00:02,  2.3it/s]",
        )
        assert (reader.progress.stage, reader.progress.step) == ("staging", None)

    def test_bars_of_the_uploads_are_not_the_training(self) -> None:
        reader = fed(
            transfer(stage="delivering", bytes_done=5, bytes_total=10, rate=1),
            " 30%|███       | 3/10 [00:01<50:02,  2.3it/s]",
        )
        assert (reader.progress.step, reader.progress.eta_seconds) == (None, 5)

    def test_the_rank_that_is_ahead_counts(self) -> None:
        reader = fed(
            transfer(stage="staging", bytes_done=5, bytes_total=10),
            transfer(stage="staging", bytes_done=3, bytes_total=10),
        )
        assert reader.progress.bytes_done == 5

    def test_files_where_bytes_are_not_known(self) -> None:
        reader = fed(transfer(stage="staging", files_done=1, files_total=4))
        assert reader.progress.fraction == 0.25
        assert reader.progress.summary() == "staging · 1/4 files"

    def test_behind_the_prefix_of_a_launcher(self) -> None:
        reader = fed("[rank0]: " + transfer(stage="staging", bytes_done=5, bytes_total=10))
        assert reader.progress.fraction == 0.5

    @pytest.mark.parametrize("value", [-1, True, 1.5, "x", None, [1], math.nan, 10**400])
    def test_counts_that_are_none(self, value: object) -> None:
        reader = fed(transfer(stage="staging", bytes_done=value, bytes_total=10))
        assert (reader.progress.bytes_done, reader.progress.fraction) == (None, None)


class TestEstimates:
    def test_none_at_the_start_then_by_the_clock(self) -> None:
        reader = ProgressReader()
        estimates = []
        for step in (0, 10, 20, 30):
            reader.feed(f"step {step}/100 loss=0.{step}", at=START + step * 6)
            estimates.append(reader.progress.eta_seconds)
        assert estimates == [None, None, 480, 420]

    def test_none_without_a_clock(self) -> None:
        reader = fed(*(f"step {step}/100 loss=0.5" for step in range(50)))
        assert reader.progress.eta_seconds is None

    def test_lines_read_in_one_go_tell_no_speed(self) -> None:
        reader = ProgressReader()
        for step in range(50):
            reader.feed(f"step {step}/100 loss=0.5", at=START)
        assert reader.progress.eta_seconds is None

    def test_polls_with_many_lines_each(self) -> None:
        reader = ProgressReader()
        for poll in range(4):
            for step in range(10):
                line = f"step {poll * 10 + step}/100 loss=0.5"
                reader.feed(line, at=START + poll * 30)
        assert reader.progress.eta_seconds == pytest.approx(61 * 3, rel=0.02)

    def test_the_recent_past_counts(self) -> None:
        reader = ProgressReader()
        now = START
        for step in range(400):
            now += 100 if step < 100 else 2
            reader.feed(f"step {step}/1000 loss=0.5", at=now)
        assert reader.progress.eta_seconds == pytest.approx(600 * 2, rel=0.01)

    def test_the_tool_knows_better(self) -> None:
        reader = ProgressReader()
        for step in (0, 10, 20, 30):
            line = f"Iter(train) [{step}/100]  eta: 0:33:20  loss: 0.{step}"
            reader.feed(line, at=START + step * 6)
        assert reader.progress.eta_seconds == 2000

    def test_what_the_tool_said_runs_down(self) -> None:
        reader = ProgressReader()
        reader.feed("Iter(train) [10/100]  eta: 0:01:40  loss: 0.5", at=START)
        reader.feed("step 11/100 loss=0.4", at=START + 30)
        assert reader.progress.eta_seconds == 70
        reader.feed("step 12/100 loss=0.3", at=START + 200)
        assert reader.progress.eta_seconds == 88 * 100  # it was wrong: what was measured counts

    def test_a_clock_that_is_set_back(self) -> None:
        reader = ProgressReader()
        for step, at in ((0, 100.0), (10, 160.0), (20, 220.0), (30, 50.0)):
            reader.feed(f"step {step}/100 loss=0.{step}", at=START + at)
        assert reader.progress.eta_seconds is None

    def test_transfers_by_the_clock_where_no_rate_is_told(self) -> None:
        reader = ProgressReader()
        for part in range(4):
            line = transfer(stage="staging", bytes_done=part * 10, bytes_total=100)
            reader.feed(line, at=START + part * 5)
        assert reader.progress.eta_seconds == 35


class TestNumbersThatAreNone:
    @pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", "1e999"])
    def test_loss(self, value: str) -> None:
        reader = fed("Epoch 1/5: loss=0.5 acc=0.9", f"Epoch 2/5: loss={value} acc=0.1")
        progress = reader.progress
        assert (progress.loss, progress.not_finite) == (None, ("loss",))
        assert progress.metrics == {"acc": 0.1}
        assert progress.summary() == "epoch 2/5 · loss is not finite · acc 0.1"
        json.dumps(progress.to_dict(), allow_nan=False)

    def test_in_status_json(self) -> None:
        reader = ProgressReader()
        reader.feed_status_line('{"status": "RUNNING", "epoch": 1, "kpi": {"train_loss": NaN}}')
        assert (reader.progress.loss, reader.progress.not_finite) == (None, ("train_loss",))

    def test_it_recovers(self) -> None:
        reader = fed("Epoch 1/5: loss=nan", "Epoch 2/5: loss=0.5")
        assert (reader.progress.loss, reader.progress.not_finite) == (0.5, ())


@pytest.mark.parametrize("name", ["a" * 129, "line\nbreak", "\x1b[31macc", ""])
def test_names_that_are_none(name: str) -> None:
    reader = ProgressReader()
    reader.feed_status_line(json.dumps({"status": "RUNNING", "kpi": {name: 1.0, "acc": 0.5}}))
    assert set(reader.progress.metrics) <= {"acc", ""}


def test_memory_is_bounded() -> None:
    reader = fed(*(f"step {n} loss=0.5 name_{n}=1.0" for n in range(1000)))
    assert len(reader.progress.metrics) <= 64
