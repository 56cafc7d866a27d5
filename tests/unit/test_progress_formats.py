"""Progress read from the logs of real tools.

The samples of Lightning, Hugging Face, Keras 3, MMEngine, Ultralytics and the demo trainer are what
those tools printed in a small run; the others are written after their formats.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tao_sdk.progress import Progress, ProgressReader

SAMPLES = Path(__file__).parent / "progress_samples"
TRAINER = Path(__file__).parents[2] / "examples" / "tiny_trainer"
START = 1_700_000_000.0


def lines_of(sample: str) -> list[str]:
    # Not splitlines(): carriage returns belong to the lines.
    return (SAMPLES / sample).read_bytes().decode().rstrip("\n").split("\n")


def trail_of(lines: list[str]) -> list[Progress]:
    """Every progress that differed from the one before, with a second between the lines."""
    reader = ProgressReader()
    return [
        reader.progress for number, line in enumerate(lines) if reader.feed(line, at=START + number)
    ]


def read(*lines: str) -> Progress:
    reader = ProgressReader()
    for line in lines:
        reader.feed(line)
    return reader.progress


def summaries(sample: str) -> list[str]:
    return [progress.summary() for progress in trail_of(lines_of(sample))]


@pytest.mark.parametrize(
    "sample",
    [path.name for path in sorted(SAMPLES.glob("*.log")) if path.name != "near_misses.log"],
)
def test_no_sample_runs_backwards(sample: str) -> None:
    trail = trail_of(lines_of(sample))
    running = [progress for progress in trail if progress.stage == "running"]
    assert running
    epochs = [progress.epoch for progress in running if progress.epoch is not None]
    fractions = [progress.fraction for progress in running if progress.fraction is not None]
    assert epochs == sorted(epochs)
    assert fractions == sorted(fractions)


def test_no_near_miss_counts() -> None:
    reader = ProgressReader()
    taken = [line for line in lines_of("near_misses.log") if reader.feed(line, at=START)]
    assert taken == []
    assert reader.progress == Progress()


def test_near_misses_do_not_disturb_a_running_training() -> None:
    reader = ProgressReader()
    reader.feed("Epoch 2/5: train_loss=0.5 val_acc=0.8")
    before = reader.progress
    for line in lines_of("near_misses.log"):
        reader.feed(line)
    assert reader.progress == before


class TestLightning:
    def test_bar(self) -> None:
        progress = read(
            "Epoch 3:  45%|████▌     | 120/266 [00:31<00:38,  3.80it/s, v_num=1, train_loss=0.412]"
        )
        assert (progress.epoch, progress.epochs) == (4, None)
        assert (progress.step, progress.steps) == (120, 266)
        assert (progress.rate, progress.rate_unit) == (3.8, "it/s")
        assert progress.loss == 0.412
        assert progress.metrics == {"train_loss": 0.412}
        # Without the number of epochs nobody knows how much that is.
        assert (progress.fraction, progress.eta_seconds) == (None, None)

    def test_number_of_epochs_from_status_json(self) -> None:
        reader = ProgressReader()
        reader.feed_status_line('{"status": "RUNNING", "epoch": 3, "max_epoch": 10}')
        reader.feed("Epoch 3:  50%|█████     | 50/100 [00:30<00:30,  1.7it/s, v_num=1]")
        assert reader.progress.fraction == 0.35
        assert reader.progress.eta_seconds == 30 + 6 * 60

    def test_whole_run(self) -> None:
        trail = trail_of(lines_of("lightning_tqdm.log"))
        first, last = trail[0], trail[-1]
        assert (first.epoch, first.step, first.steps) == (1, 20, 20)
        assert last.summary() == "epoch 3/3 · step 20/20 · loss 0.555 · val_acc 0.93"
        assert (last.fraction, last.eta_seconds) == (1.0, 0.0)
        assert last.metrics == {"train_loss": 0.555, "val_loss": 0.489, "val_acc": 0.93}

    def test_bar_drawn_with_rich(self) -> None:
        trail = trail_of(lines_of("lightning_rich_terminal.log"))
        assert (trail[0].epoch, trail[0].epochs, trail[0].step, trail[0].steps) == (1, 3, 0, 20)
        assert trail[0].rate is None  # it shows 0.00it/s until it knows
        assert trail[-1].epoch == 3
        assert trail[-1].fraction == 1.0

    def test_message_of_the_checkpoint(self) -> None:
        progress = read(
            "Epoch 2, global step 532: 'val_mAP' reached 0.41000 (best 0.41000), saving model to "
            "'/results/model_epoch_002.pth' as top 3"
        )
        assert progress.epoch == 3
        assert progress.metrics == {"val_mAP": 0.41}
        assert progress.step is None

    def test_evaluation_alone_is_progress_too(self) -> None:
        progress = read("Testing DataLoader 0:  45%|████▌     | 9/20 [00:09<00:11,  1.00it/s]")
        assert (progress.step, progress.steps, progress.fraction) == (9, 20, 0.45)
        assert progress.eta_seconds == 11

    def test_validation_within_training_is_not(self) -> None:
        bar = "Epoch 3:  45%|████▌     | 120/266 [00:31<00:38,  3.80it/s, v_num=1]"
        validation = "Validation DataLoader 0:  90%|█████████ | 9/10 [00:09<00:01,  1.00it/s]"
        assert read(bar, validation) == read(bar)


class TestHuggingFace:
    def test_whole_run(self) -> None:
        trail = trail_of(lines_of("hf_trainer.log"))
        # The evaluation's bars have 10 steps, the training has 45.
        assert {progress.steps for progress in trail if progress.steps} == {45}
        last = trail[-1]
        assert (last.epoch, last.epochs, last.step, last.fraction) == (3, 3, 45, 1.0)
        assert last.loss == 1.286
        assert last.metrics["eval_loss"] == pytest.approx(1.2273, abs=1e-4)

    def test_fractional_epoch(self) -> None:
        progress = read(
            "  Num Epochs = 4",
            "{'loss': 0.4123, 'grad_norm': 1.2, 'learning_rate': 4e-05, 'epoch': 1.25}",
        )
        assert (progress.epoch, progress.epochs) == (2, 4)
        assert progress.fraction == 1.25 / 4
        assert progress.loss == 0.4123
        assert progress.metrics == {"loss": 0.4123, "grad_norm": 1.2, "learning_rate": 4e-05}

    def test_the_mean_loss_of_the_run_is_not_the_latest(self) -> None:
        progress = read(
            "{'loss': 0.2, 'epoch': 2.9}",
            "{'train_runtime': 12.3, 'train_loss': 0.9, 'epoch': 3.0}",
        )
        assert progress.loss == 0.2
        assert progress.metrics == {"loss": 0.2}

    def test_text_glued_to_a_bar(self) -> None:
        progress = read(
            " 25%|██▌       | 1999/8000 [1:52:09<20:27:23,  3.33s/it]{'loss': 6.26, 'epoch': 0.5}"
        )
        assert (progress.step, progress.steps, progress.loss) == (1999, 8000, 6.26)
        assert progress.eta_seconds == 20 * 3600 + 27 * 60 + 23
        assert progress.rate == 0.3003


class TestTqdm:
    def test_last_of_the_redraws(self) -> None:
        progress = read(
            "\r  0%|          | 0/400 [00:00<?, ?it/s]"
            "\r 10%|█         | 40/400 [00:10<01:30,  4.00it/s]"
            "\r 30%|███       | 120/400 [00:30<01:10,  4.00it/s]"
        )
        assert (progress.step, progress.steps, progress.fraction) == (120, 400, 0.3)
        assert (progress.rate, progress.eta_seconds) == (4.0, 70)

    def test_cut_off_at_the_end(self) -> None:
        progress = read(
            "\r 10%|█         | 40/400 [00:10<01:30,  4.00it/s]\r 20%|██        | 80/400 [00:2"
        )
        assert progress.step == 80

    def test_bar_of_epochs(self) -> None:
        progress = read("Epochs:  30%|███       | 3/10 [01:00<02:20, 20.00s/it]")
        assert (progress.epoch, progress.epochs, progress.fraction) == (3, 10, 0.3)
        assert progress.eta_seconds == 140

    def test_bars_belong_to_the_epoch_announced_before(self) -> None:
        assert summaries("tqdm_in_announced_epochs.log") == [
            "epoch 1/3",
            "epoch 1/3 · step 100/100 · 40 s left",
            "epoch 2/3 · 38 s left",
            "epoch 2/3 · step 25/100 · 35 s left",
        ]

    def test_preparation_gives_way_to_training(self) -> None:
        preparation = "100%|██████████| 500/500 [00:10<00:00, 50.00it/s]"
        assert read(preparation).step == 500
        progress = read(preparation, "Epoch 1/4: loss=0.5")
        assert (progress.epoch, progress.step, progress.fraction) == (1, None, 0.25)
        progress = read(preparation, "step 1/4000 loss=0.5")
        assert (progress.step, progress.steps, progress.rate) == (1, 4000, None)

    def test_preparation_in_rounds_gives_way_to_training(self) -> None:
        start, end = " 10%|█         | 1/10 [00:01<00:09]", "100%|██████████| 10/10 [00:10<00:00]"
        assert read(start, end, start, end, "step 1000/4000 loss=0.5").fraction == 0.25

    def test_a_bar_within_a_bar(self) -> None:
        outer, inner = (
            "{0}0%|███       | {0}/10 [00:01<00:02,  2.3it/s]",
            " 50%|█| 50/100 [00:01<00:02]",
        )
        assert (read(outer.format(3), inner).step, read(outer.format(3), inner).steps) == (3, 10)
        assert read(outer.format(10), inner).steps == 100  # the first one is over

    def test_a_bar_that_begins_again_is_not_the_run(self) -> None:
        """One bar per epoch, and nothing says how many: no fraction rather than a wrong one."""
        for name in ("", "Training: ", "loss: 0.5 "):
            bar = name + "{0}%|█         | {0}/100 [00:01<00:02,  2.3it/s]"
            first = [bar.format(step) for step in range(10, 101, 10)]
            assert read(*first).fraction == 1.0
            second = read(*first, bar.format(0), bar.format(10))
            assert (second.step, second.steps) == (10, 100)
            assert (second.fraction, second.eta_seconds) == (None, None)
            third = read(*first, *first, bar.format(5))
            assert (third.step, third.fraction) == (5, None)

    def test_a_bar_that_says_it_is_training_comes_first(self) -> None:
        bar = "{0}:  50%|█████     | {1}/100 [00:01<00:02,  2.3it/s]"
        progress = read(bar.format("Testing", 5), bar.format("Training", 1))
        assert progress.step == 1

    def test_a_rank_that_is_not_done_yet(self) -> None:
        bar = "Training: {0}%|█         | {0}/100 [00:01<00:02,  2.3it/s]"
        assert read(bar.format(100), bar.format(99)).fraction == 1.0

    def test_bars_with_a_name_in_an_announced_epoch(self) -> None:
        progress = read("Epoch 2/4", "Training:  50%|█████     | 50/100 [00:10<00:10,  5.0it/s]")
        assert (progress.epoch, progress.fraction, progress.eta_seconds) == (2, 0.375, 50)

    def test_epoch_and_values_before_the_bar(self) -> None:
        bar = "Epoch 2/4 [train] loss: 0.5:  50%|█████     | 50/100 [00:10<00:10,  5.0it/s]"
        progress = read(bar)
        assert (progress.epoch, progress.fraction, progress.loss) == (2, 0.375, 0.5)

    def test_a_bar_drawn_late(self) -> None:
        bar = " {0}0%|█         | {0}/10 [00:01<00:02,  2.3it/s]"
        assert read(bar.format(4), bar.format(3)).step == 4

    @pytest.mark.parametrize("prefix", ["[rank0]: ", "[1,0]<stderr>:", "0: ", "[default0]:"])
    def test_prefix_of_a_launcher(self, prefix: str) -> None:
        assert read(prefix + " 30%|███       | 3/10 [00:01<00:02,  2.3it/s]").step == 3


class TestMMEngine:
    def test_line(self) -> None:
        progress = read(
            "Epoch(train) [1][ 50/100]  lr: 1e-3 eta: 0:01:23 time: 0.5 data_time: 0.1 loss: 1.2"
        )
        assert (progress.epoch, progress.step, progress.steps) == (1, 50, 100)
        assert (progress.eta_seconds, progress.rate, progress.loss) == (83, 2.0, 1.2)
        assert progress.metrics == {"lr": 0.001, "loss": 1.2}

    def test_whole_run(self) -> None:
        last = trail_of(lines_of("mmengine.log"))[-1]
        assert (last.epoch, last.step, last.steps) == (3, 100, 100)
        assert last.metrics == {"lr": 0.01, "loss": 0.5828, "accuracy": 89.25}

    def test_steps_that_take_no_time(self) -> None:
        assert read("Epoch(train) [1][ 50/100]  time: 0.0000  loss: 1.2").rate is None

    def test_results_of_a_validation(self) -> None:
        training = "Epoch(train) [1][100/100]  lr: 1e-3 eta: 0:01:23 loss: 1.2"
        progress = read(training, "Epoch(val) [1][20/20]    coco/bbox_mAP: 0.4  loss: 0.7")
        assert (progress.loss, progress.metrics["coco/bbox_mAP"]) == (1.2, 0.4)

    def test_by_iterations(self) -> None:
        progress = read(
            "2023-06-21 05:37:06,540 - mmseg - INFO - Iter [200/1000]\tlr: 9.9e-03, "
            "eta: 1 day, 1:05:45, time: 0.125, data_time: 0.008, memory: 22159, "
            "decode.loss_ce: 1.26, decode.acc_seg: 11.9, loss: 1.75"
        )
        assert (progress.fraction, progress.loss, progress.rate) == (0.2, 1.75, 8.0)
        assert progress.eta_seconds == 86_400 + 3600 + 5 * 60 + 45
        assert "memory" not in progress.metrics

    def test_test_run(self) -> None:
        progress = read("Epoch(test) [ 50/200]    eta: 0:00:15  time: 0.1  data_time: 0.01")
        assert (progress.fraction, progress.eta_seconds) == (0.25, 15)

    def test_epochs_from_zero(self) -> None:
        """The PyTorch examples print the same shape and begin with 0."""
        progress = read("Epoch: [0][ 10/5005]\tLoss 6.9e+00 (7.0e+00)")
        assert (progress.epoch, progress.step, progress.loss) == (1, 10, 6.9)
        first, second = "Epoch: [0][ 10/5005]\tLoss 6.9", "Epoch: [1][ 10/5005]\tLoss 6.1"
        assert read(first, second).epoch == 2


class TestKeras:
    def test_version_2(self) -> None:
        trail = trail_of(lines_of("keras2.log"))
        assert [progress.fraction for progress in trail] == [
            0.0,
            0.03125,
            0.25,
            0.25,
            0.375,
            0.5,
            0.5,
            0.5625,
        ]
        assert trail[-1].metrics["val_accuracy"] == 0.74
        assert trail[-1].loss == 0.773

    def test_estimate_in_the_last_epoch(self) -> None:
        progress = read(
            "Epoch 3/3", "120/400 [========>.....................] - ETA: 1:02 - loss: 0.41"
        )
        assert progress.eta_seconds == 62

    def test_estimate_of_version_3(self) -> None:
        line = "120/400 ━━━━━━━━━━━━━━━━━━━━ 14s 50ms/step - loss: 0.41"
        assert read("Epoch 3/3", line).eta_seconds == 14
        assert read("Epoch 3/3", line).rate == 20

    def test_version_3_draws_in_place(self) -> None:
        trail = trail_of(lines_of("keras3.log"))
        assert {progress.steps for progress in trail} == {None, 16}
        assert trail[-1].fraction == 1.0
        assert trail[-1].metrics["val_loss"] == 1.1288

    def test_evaluation_does_not_replace_the_training_loss(self) -> None:
        training = ("Epoch 3/3", "16/16 ━━━━━━━━━━━━━━━━━━━━ 1s 40ms/step - loss: 1.4223")
        evaluation = "13/13 ━━━━━━━━━━━━━━━━━━━━ 0s 2ms/step - loss: 9.9"
        assert read(*training, evaluation) == read(*training)


class TestYolo:
    def test_ultralytics(self) -> None:
        last = trail_of(lines_of("ultralytics.log"))[-1]
        assert (last.epoch, last.epochs, last.step, last.steps) == (3, 3, 6, 6)
        assert last.metrics == {
            "box_loss": 0.04826,
            "cls_loss": 0.3295,
            "dfl_loss": 0.02894,
            "precision": 0,
            "recall": 0,
            "mAP50": 0,
            "mAP50-95": 0,
        }
        # It prints the parts of the loss, not the loss.
        assert last.loss is None

    def test_bar_of_tqdm(self) -> None:
        progress = read(
            "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
            "     70/100      6.73G      1.081     0.4706        nan         10        640:  50%|"
            "█████     | 8/16 [00:05<00:05,  1.60it/s]",
            "                 Class     Images  Instances      Box(P          R      mAP50"
            "  mAP50-95): 100%|██████████| 8/8 [00:03<00:00,  2.17it/s]",
        )
        assert progress.fraction == 0.695
        assert progress.eta_seconds == 5 + 30 * 10
        assert progress.metrics == {"box_loss": 1.081, "cls_loss": 0.4706}
        assert progress.not_finite == ("dfl_loss",)

    def test_without_its_header(self) -> None:
        """The log is often read from somewhere in the middle."""
        progress = read("  0/2   3.36G  0.10  0.13  0.09  36  640:  50%|██ | 1/2 [00:01<00:01]")
        assert (progress.epoch, progress.epochs, progress.metrics) == (1, 3, {})

    def test_version_5_counts_from_zero(self) -> None:
        assert summaries("yolov5.log") == [
            "epoch 1/3 · step 463/463 · box_loss 0.1027 · 3 min left",
            "epoch 1/3 · step 463/463 · mAP50 0.702 · 3 min left",
            "epoch 2/3 · step 232/463 · mAP50 0.702 · 2 min left",
        ]


class TestPlainLines:
    def test_demo_trainer(self) -> None:
        trail = trail_of(lines_of("tiny_trainer.log"))
        assert [progress.fraction for progress in trail] == [0.2, 0.4, 0.6, 0.8, 1.0]
        assert trail[2].summary() == "epoch 3/5 · loss 0.2874 · val_acc 0.9213 · 2 s left"
        assert (trail[2].rate, trail[2].metrics["lr"]) == (6079, 0.05)

    def test_demo_trainer_as_it_is_today(self, tmp_path: Path) -> None:
        pytest.importorskip("numpy")
        spec = {
            "results_dir": str(tmp_path / "results"),
            "dataset": {"num_samples": 200},
            "train": {"num_epochs": 3},
        }
        (tmp_path / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        output = subprocess.run(
            [sys.executable, str(TRAINER), "train", "-e", str(tmp_path / "spec.json")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        from_log = read(*output.splitlines())
        reader = ProgressReader()
        for line in (tmp_path / "results/status.json").read_text(encoding="utf-8").splitlines():
            reader.feed_status_line(line)
        for progress in (from_log, reader.progress):
            assert (progress.epoch, progress.epochs, progress.fraction) == (3, 3, 1.0)
            assert set(progress.metrics) - {"lr"} == {"train_loss", "val_loss", "val_acc"}

    @pytest.mark.parametrize(
        ("line", "epoch", "step", "loss", "fraction"),
        [
            ("step 120/4000 loss=1.25", None, 120, 1.25, 0.03),
            ("iter 500: loss 2.3122, time 241.23ms, mfu 5.2%", None, 500, 2.3122, None),
            ("step=100, skipped=0, lr=[5e-05], loss=1.5", None, 100, 1.5, None),
            ("global step 7: loss = 62.5 (20.205 sec/step)", None, 7, 62.5, None),
            ("step 250: train loss 2.5, val loss 2.75", None, 250, 2.5, None),
            ("Epoch [2/4], Step [300/600], Loss: 0.21", 2, 300, 0.21, 0.375),
            ("Train Epoch: 1 [500/1000 (50%)]\tLoss: 2.5", 1, 500, 2.5, None),
            ("| epoch 002:    225 / 900 loss=7.137, ppl=55.87", 2, 225, 7.137, None),
            ("Epoch 3/4: loss: 0.5 learning rate: 0.001 Time taken: 0:00:12", 3, None, 0.5, 0.75),
            ("Epoch 3/4", 3, None, None, 0.5),
            ("---- Epoch 3 ----", 3, None, None, None),
            ("Epoch 3/4 finished in 12.1 s", 3, None, None, 0.75),
            ("[INFO] epoch 3 of 4, loss=0.5", 3, None, 0.5, 0.75),
        ],
    )
    def test_line(
        self,
        line: str,
        epoch: int | None,
        step: int | None,
        loss: float | None,
        fraction: float | None,
    ) -> None:
        progress = read(line)
        found = (progress.epoch, progress.step, progress.loss, progress.fraction)
        assert found == (epoch, step, loss, fraction)
        assert progress.message == " ".join(line.split())

    def test_steps_within_an_announced_epoch(self) -> None:
        lines = ("Epoch 1/4", "step 90/100 loss=0.5", "Epoch 2/4", "step 10/100 loss=0.4")
        progress = read(*lines)
        assert (progress.epoch, progress.step, progress.fraction) == (2, 10, 0.275)

    def test_estimate_of_the_tool(self) -> None:
        progress = read("Epoch 3/10: loss: 0.5 Time taken: 0:00:12 ETA: 0:01:24")
        assert progress.eta_seconds == 84

    def test_cosmos_rl(self) -> None:
        [progress] = trail_of(lines_of("cosmos_rl.log"))  # the second rank is behind
        assert progress.summary() == "step 1180/4720 · loss -0.02344 · Reward 1.312"
        assert (progress.fraction, progress.rate) == (0.25, 0.0125)
        assert set(progress.metrics) == {"Loss", "learning_rate", "completion_length", "Reward"}

    def test_nemo(self) -> None:
        trail = trail_of(lines_of("nemo.log"))
        assert [progress.step for progress in trail] == [1, 60, 75]
        assert (trail[-1].epoch, trail[-1].steps, trail[-1].fraction) == (1, 150, 0.5)
        assert (trail[-1].loss, trail[-1].rate) == (3.905, 4.0)
        assert trail[-1].metrics == {"lr": 3e-05, "reduced_train_loss": 3.905, "val_loss": 4.106}

    def test_nemo_on_lightning(self) -> None:
        [progress] = trail_of(lines_of("nemo_lightning.log"))
        assert (progress.epoch, progress.step, progress.steps) == (1, 795, 77225)
        assert progress.metrics == {"loss": 3.1, "reduced_train_loss": 3.09}

    def test_deepspeed_and_megatron(self) -> None:
        last = trail_of(lines_of("megatron_deepspeed.log"))[-1]
        assert (last.step, last.steps, last.fraction, last.loss) == (35, 10000, 0.0035, 11.18665)
        assert set(last.metrics) == {"lr", "learning_rate", "lm_loss", "grad_norm"}

    def test_evaluation_leaves_its_metrics_only(self) -> None:
        training = "Epoch 2/4: loss=0.5"
        progress = read(training, "Validation epoch 4/4: acc=0.9 loss=0.7")
        assert (progress.epoch, progress.loss) == (2, 0.5)
        assert progress.metrics == {"loss": 0.5, "acc": 0.9}
