"""Delivery to a folder that stands for a store: what arrives, when, and what is said."""

from __future__ import annotations

import io
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tao_sdk.planning.excludes import compile_excludes
from tao_sdk.progress import ProgressReader
from tao_sdk.runner.deliver import DELIVERY_FAILED, Delivery, DeliveryResult, overall_exit_code
from tao_sdk.runner.errors import TransferError
from tao_sdk.runner.excludes import Excludes
from tao_sdk.runner.report import Reporter, Stage

LARGE = b"x" * ((1 << 20) + 1)
LONG_AGO = 1_600_000_000


class Output(NamedTuple):
    local: str
    uri: str


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError(f"not within 30 seconds: {what}")


class FolderStore:
    """Objects are files below a folder; everything that was asked for is written down."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uploads: list[tuple[str, int]] = []
        self.threads: set[int] = set()
        self.refused: set[str] = set()
        self.before_reading: Callable[[str], None] = lambda path: None

    def upload_all(
        self, pairs: Sequence[tuple[str, str]], progress: Stage, *, threads: int
    ) -> list[tuple[str, str]]:
        self.threads.add(threads)
        failures = []
        for path, uri in pairs:
            self.before_reading(path)
            target = self.root / uri.partition("://")[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                if Path(path).name in self.refused:
                    raise PermissionError("refused")
                draft = Path(shutil.copyfile(path, f"{self.root}.draft"))
            except OSError as error:
                failures.append((path, str(error)))
                continue
            size = draft.stat().st_size
            self.uploads.append((uri, size))
            draft.replace(target)  # objects appear whole
            progress.add(size)
            progress.file_done()
        return failures

    def names(self) -> list[str]:
        files = (path for path in self.root.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.root)) for path in files)


class Lab:
    def __init__(self, folder: Path) -> None:
        self.work = folder / "job"
        self.out = self.work / "out"
        self.out.mkdir(parents=True)
        self.store = FolderStore(folder / "store")
        self.store.root.mkdir()
        self.stream = io.StringIO()
        self.reporter = Reporter(self.stream)
        self.deliveries: list[Delivery] = []

    def write(self, name: str, data: bytes = b"data", age: float = 1000) -> Path:
        """A file that was written `age` seconds ago."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (time.time() - age, time.time() - age))
        return path

    def start(
        self,
        *outputs: Output,
        interval: float = 0.01,
        excludes: Excludes | None = None,
        **options: Any,
    ) -> Delivery:
        delivery = Delivery(
            outputs or [Output(str(self.out), "s3://b/out/")],
            excludes or Excludes([]),
            self.store,
            self.reporter,
            work=str(self.work),
            interval=interval,
            **options,
        )
        delivery.start(self.reporter.stage("running"))
        self.deliveries.append(delivery)
        return delivery

    def deliver(self, *outputs: Output, **options: Any) -> DeliveryResult:
        """Only the delivery at the end."""
        return self.start(*outputs, interval=0, **options).finish(lambda: math.inf)

    def arrived(self, name: str) -> bytes:
        path = self.store.root / "b/out" / name
        until(path.exists, f"{name} is delivered")
        return path.read_bytes()

    @property
    def said(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.store.before_reading = lambda path: None
    for delivery in lab.deliveries:
        delivery.finish(lambda: math.inf)


class GrowsWhenLookedAt(Excludes):
    """Lets a file grow between any two looks at it, `rounds` times, with its date held fast."""

    def __init__(self, path: Path, rounds: int) -> None:
        super().__init__([])
        self.path = path
        self.rounds = rounds

    def excluded(self, path: str, is_folder: bool) -> bool:
        if path == self.path.name and self.rounds:
            self.rounds -= 1
            with self.path.open("ab") as file:
                file.write(LARGE)
            os.utime(self.path, (LONG_AGO, LONG_AGO))
        return False


class TestWhileTheCommandRuns:
    def test_what_has_come_to_rest_is_delivered(self, lab: Lab) -> None:
        lab.start()
        lab.write("train/epoch_1.pth", b"one")
        assert lab.arrived("train/epoch_1.pth") == b"one"
        lab.write("train/epoch_1.pth", b"changed")
        until(lambda: lab.arrived("train/epoch_1.pth") == b"changed", "the change is delivered")
        assert max(lab.store.threads) <= 4

    def test_nothing_is_sent_twice(self, lab: Lab) -> None:
        delivery = lab.start()
        lab.write("a")
        lab.arrived("a")
        lab.write("b")
        lab.arrived("b")
        delivery.finish(lambda: math.inf)
        assert sorted(lab.store.uploads) == [("s3://b/out/a", 4), ("s3://b/out/b", 4)]

    def test_a_file_that_was_written_just_now_waits(self, lab: Lab) -> None:
        delivery = lab.start(settle_seconds=500)
        lab.write("fresh", age=0)
        lab.write("rested")
        lab.arrived("rested")
        lab.write("rested_later")
        lab.arrived("rested_later")
        assert lab.store.names() == ["b/out/rested", "b/out/rested_later"]
        delivery.finish(lambda: math.inf)
        assert "b/out/fresh" in lab.store.names()

    def test_no_half_checkpoint_is_delivered(self, lab: Lab) -> None:
        path = lab.write("epoch_1.pth", LARGE)
        lab.start(excludes=GrowsWhenLookedAt(path, rounds=5))
        lab.arrived("epoch_1.pth")
        assert lab.store.uploads == [("s3://b/out/epoch_1.pth", 6 * len(LARGE))]

    def test_a_pointer_comes_after_what_it_points_to(self, lab: Lab) -> None:
        path = lab.write("epoch_2.pth", LARGE)
        os.utime(path, (LONG_AGO, LONG_AGO))
        lab.write("latest", b"epoch_2.pth")
        lab.write("older.json", age=time.time() - LONG_AGO + 10)
        lab.start(excludes=GrowsWhenLookedAt(path, rounds=5))
        lab.arrived("latest")
        names = [uri.rpartition("/")[2] for uri, _ in lab.store.uploads]
        assert names == ["older.json", "epoch_2.pth", "latest"]

    def test_a_rotated_checkpoint_stays_at_the_destination(self, lab: Lab) -> None:
        delivery = lab.start()
        path = lab.write("epoch_1.pth")
        lab.arrived("epoch_1.pth")
        path.unlink()
        result = delivery.finish(lambda: math.inf)
        assert lab.store.names() == ["b/out/epoch_1.pth"]
        assert (result.files, result.failed) == (1, [])

    def test_a_checkpoint_that_is_rotated_away_before_it_was_read_is_not_missed(
        self, lab: Lab
    ) -> None:
        lab.write("epoch_1.pth")
        lab.write("epoch_2.pth")
        lab.store.before_reading = lambda path: (lab.out / "epoch_1.pth").unlink(missing_ok=True)
        result = lab.deliver()
        assert (result.files, result.failed) == (1, [])
        assert "not delivered" not in lab.said

    def test_failures_only_warn_and_are_tried_again(self, lab: Lab) -> None:
        lab.store.refused = {"a"}
        delivery = lab.start()
        lab.write("a")
        until(lambda: "warning" in lab.said, "there is a warning")
        warning = "not delivered yet, to be tried again"
        assert f"{warning}: {lab.out}/a (refused)" in lab.said
        lab.store.refused = set()
        lab.arrived("a")
        result = delivery.finish(lambda: math.inf)
        assert result.failed == []
        assert lab.said.count(warning) == 1

    def test_what_came_from_the_destination_is_not_sent_back(self, lab: Lab) -> None:
        delivery = Delivery(
            [Output(str(lab.out), "s3://b/out")],
            Excludes([]),
            lab.store,
            lab.reporter,
            work=str(lab.work),
        )
        path = lab.write("epoch_1.pth")
        lab.write("leftover")
        delivery.assume_delivered([str(path)])
        delivery.start(lab.reporter.stage("running"))
        delivery.finish(lambda: math.inf)
        assert lab.store.names() == ["b/out/leftover"]


class TestAtTheEnd:
    def test_everything_goes_as_it_is(self, lab: Lab) -> None:
        lab.write("model.pth", LARGE, age=0)
        lab.write("empty", b"", age=0)
        lab.write("deep/er/ünï côde", age=0)
        result = lab.deliver()
        assert lab.store.names() == ["b/out/deep/er/ünï côde", "b/out/empty", "b/out/model.pth"]
        assert (result.files, result.nbytes) == (3, len(LARGE) + 4)
        assert (result.failed, result.skipped) == ([], [])
        assert overall_exit_code(0, result) == 0

    def test_what_is_missing_is_named_and_decides_the_exit_code(self, lab: Lab) -> None:
        lab.write("good")
        lab.store.refused = {f"bad{number}" for number in range(15)}
        for name in lab.store.refused:
            lab.write(name)
        result = lab.deliver()
        assert result.files == 1
        assert result.failed[0] == (f"{lab.out}/bad0", "refused")
        assert len(result.failed) == 15
        assert f"error: 15 of the results were not delivered: {lab.out}/bad0" in lab.said
        assert "and 5 more (refused)" in lab.said
        assert overall_exit_code(0, result) == DELIVERY_FAILED == 74
        assert overall_exit_code(3, result) == 3
        assert overall_exit_code(0, None) == 0

    def test_a_store_that_cannot_be_used_at_all_is_a_reason_for_every_file(self, lab: Lab) -> None:
        def fail(path: str) -> None:
            raise TransferError("s3://b: no such bucket")

        lab.store.before_reading = fail
        lab.write("a")
        lab.write("b", LARGE)
        result = lab.deliver()
        assert [reason for _, reason in result.failed] == ["s3://b: no such bucket"] * 2

    def test_time_may_run_out(self, lab: Lab) -> None:
        """A store that hangs must not hold up a job that was told to stop."""
        hanging, go_on = threading.Event(), threading.Event()

        def hang(path: str) -> None:
            hanging.set()
            go_on.wait(60)

        lab.store.before_reading = hang
        lab.write("a")
        delivery = lab.start(interval=0)
        limit = [math.inf]

        def time_limit() -> float:
            if hanging.is_set():
                limit[0] = 0.0
            return limit[0]

        result = delivery.finish(time_limit)
        assert result.failed == [(f"{lab.out}/a", "the time for delivery was up")]
        go_on.set()

    def test_an_upload_under_way_is_waited_for(self, lab: Lab) -> None:
        hanging, go_on = threading.Event(), threading.Event()

        def hang(path: str) -> None:
            hanging.set()
            go_on.wait(60)

        lab.store.before_reading = hang
        delivery = lab.start()
        lab.write("a")
        assert hanging.wait(30)
        results: list[DeliveryResult] = []
        finisher = threading.Thread(
            target=lambda: results.append(delivery.finish(lambda: math.inf))
        )
        finisher.start()
        go_on.set()
        finisher.join(30)
        assert results[0].failed == []
        assert lab.store.uploads == [("s3://b/out/a", 4)]

    def test_an_output_that_was_not_written_is_mentioned(self, lab: Lab) -> None:
        result = lab.deliver(Output(str(lab.out / "model.onnx"), "s3://b/out/model.onnx"))
        assert result == DeliveryResult(0, 0, [], [])
        assert f"{lab.out}/model.onnx was not written" in lab.said

    def test_files_folders_and_what_stays(self, lab: Lab) -> None:
        path = lab.write("export/model.onnx")
        lab.write("train/a")
        outputs = [
            Output(str(path), "s3://b/x/model.onnx"),
            Output(str(lab.out / "train"), "s3://b/y"),
            Output(str(lab.out), ""),
        ]
        lab.deliver(*outputs)
        assert lab.store.names() == ["b/x/model.onnx", "b/y/a"]

    def test_each_rank_has_a_place_of_its_own(self, lab: Lab) -> None:
        path = lab.write("model.onnx")
        outputs = [Output(str(lab.out), "s3://b/out/"), Output(str(path), "s3://b/x/model.onnx")]
        lab.deliver(*outputs)
        path.write_bytes(b"of rank 2")
        lab.deliver(*outputs, rank=2)
        assert lab.store.names() == [
            *("b/out/model.onnx", "b/out/rank2/model.onnx"),
            *("b/x/model.onnx", "b/x/rank2/model.onnx"),
        ]
        assert lab.arrived("model.onnx") == b"data"


class TestWhatIsDelivered:
    def test_a_broken_link_is_skipped_and_mentioned(self, lab: Lab) -> None:
        """Lesson A7: a `latest` that points nowhere does not cost the results."""
        lab.write("model.pth")
        (lab.out / "latest").symlink_to("epoch_9.pth")
        (lab.out / "self").symlink_to("self")
        result = lab.deliver()
        assert lab.store.names() == ["b/out/model.pth"]
        assert result.failed == []
        assert [path for path, _ in result.skipped] == [f"{lab.out}/latest", f"{lab.out}/self"]
        assert f"warning: {lab.out}/latest is not delivered: it is a broken link" in lab.said

    def test_links_inside_are_followed_and_others_are_not(self, lab: Lab, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("of the machine")
        lab.write("epochs/1.pth", b"one")
        (lab.out / "latest.pth").symlink_to("epochs/1.pth")
        (lab.out / "outside").symlink_to(tmp_path / "secret")
        (lab.out / "round").symlink_to(lab.out)
        (lab.out / "also_epochs").symlink_to("epochs")
        os.mkfifo(lab.out / "pipe")
        result = lab.deliver()
        assert lab.store.names() == ["b/out/epochs/1.pth", "b/out/latest.pth"]
        assert lab.arrived("latest.pth") == b"one"
        reasons = {Path(path).name: reason for path, reason in result.skipped}
        assert sorted(reasons) == ["also_epochs", "outside", "pipe", "round"]
        assert "not among the outputs" in reasons["outside"]

    def test_an_output_may_itself_be_a_link(self, lab: Lab, tmp_path: Path) -> None:
        lab.write("a")
        (tmp_path / "alias").symlink_to(lab.out)
        lab.deliver(Output(str(tmp_path / "alias"), "s3://b/out"))
        assert lab.store.names() == ["b/out/a"]

    def test_inputs_and_private_files_stay(self, lab: Lab) -> None:
        for name in ("inputs/data", "ptm/weights", ".tao/lock", "out/model", "out/inputs/mine"):
            lab.write(f"../{name}")
        (lab.out / "weights").symlink_to("../ptm/weights")
        result = lab.deliver(Output(str(lab.work), "s3://b/all"))
        assert lab.store.names() == ["b/all/out/inputs/mine", "b/all/out/model"]
        assert [Path(path).name for path, _ in result.skipped] == ["weights"]

    def test_excludes_are_those_of_git(self, lab: Lab) -> None:
        """Lesson A8: `inputs/` keeps that folder back, wherever it is."""
        for name in ("inputs/a.json", "train/inputs/b", "train/c", "train/d.tmp", "keep.tmp"):
            lab.write(name)
        lab.deliver(excludes=Excludes(compile_excludes(["inputs/", "*.tmp", "!/keep.tmp"])))
        assert lab.store.names() == ["b/out/keep.tmp", "b/out/train/c"]

    def test_a_name_that_no_store_can_have_is_a_failure(self, lab: Lab) -> None:
        lab.write("good")
        (lab.out / os.fsdecode(b"bad\xff")).touch()
        result = lab.deliver()
        assert lab.store.names() == ["b/out/good"]
        assert [reason for _, reason in result.failed] == ["its name is not valid UTF-8"]

    @pytest.mark.parametrize("seed", range(5))
    def test_whatever_happened_meanwhile_the_end_is_right(self, lab: Lab, seed: int) -> None:
        chance = random.Random(seed)
        delivery = lab.start(settle_seconds=0)
        names = [f"{folder}{number}" for folder in ("", "a/", "b/c/") for number in range(4)]
        for step in range(150):
            path = lab.out / chance.choice(names)
            path.parent.mkdir(parents=True, exist_ok=True)
            action = chance.random()
            if action < 0.6:
                path.write_bytes(bytes([step]) * chance.randrange(2000))
            elif action < 0.8:
                path.unlink(missing_ok=True)
            elif path.exists():
                path.replace(lab.out / chance.choice(names).rpartition("/")[2])
            if chance.random() < 0.1:
                time.sleep(chance.random() * 0.02)
        result = delivery.finish(lambda: math.inf)
        assert result.failed == []
        for path in lab.out.rglob("*"):
            if path.is_file():
                assert lab.arrived(str(path.relative_to(lab.out))) == path.read_bytes()


def test_progress_while_running_and_after(lab: Lab) -> None:
    delivery = lab.start()
    lab.write("early")
    lab.arrived("early")
    reader = ProgressReader()
    for line in lab.said.splitlines():
        reader.feed(line)
    assert reader.progress.stage == "running"
    lab.write("late", LARGE, age=-100)
    delivery.finish(lambda: math.inf)
    for line in lab.said.splitlines():
        reader.feed(line)
    seen = reader.progress
    assert (seen.stage, seen.fraction) == ("delivering", 1.0)
    assert (seen.bytes_done, seen.files_total) == (len(LARGE), 1)
    assert "tao-runner: delivered meanwhile 1 file, 4 bytes" in lab.said
    assert "tao-runner: delivered 1 file, 1.0 MiB" in lab.said


RUNNER = """
import os, shutil, sys, threading
from tao_sdk.runner.deliver import Delivery, overall_exit_code
from tao_sdk.runner.excludes import Excludes
from tao_sdk.runner.process import SignalWatch, run_command
from tao_sdk.runner.report import Reporter

class Store:
    def upload_all(self, pairs, progress, *, threads):
        if hang:
            threading.Event().wait()
        for path, uri in pairs:
            shutil.copy(path, store)
            progress.file_done()
        return []

class Output:
    local, uri = os.path.abspath("out"), "s3://b/out"

command, store, hang, seconds = sys.argv[1:]
os.makedirs("out")
signals, reporter = SignalWatch(), Reporter()
delivery = Delivery([Output], Excludes([]), Store(), reporter, work=os.getcwd())
delivery.start(reporter.stage("running"))
outcome = run_command(command, dict(os.environ), "", signals=signals, grace_seconds=30)
result = delivery.finish(signals.time_limit(float(seconds)))
os._exit(overall_exit_code(outcome.exit_code, result))
"""


class TestWithACommand:
    @pytest.mark.parametrize(
        ("ending", "code"), [("true", 0), ("exit 3", 3), ("kill -9 $$", 137), ("", 143)]
    )
    def test_results_survive_every_end(self, tmp_path: Path, ending: str, code: int) -> None:
        """Lesson A6: success, failure, a crash and a signal all deliver."""
        (tmp_path / "store").mkdir()
        wait = "" if ending else "echo up; while :; do sleep 0.02; done"
        process = self.start(tmp_path, f"echo 1 > out/epoch_1.pth; {ending or wait}")
        if not ending:
            assert process.stdout is not None
            process.stdout.readline()
            process.terminate()
        assert process.wait(30) == code
        process.communicate()
        assert [path.name for path in (tmp_path / "store").iterdir()] == ["epoch_1.pth"]

    def test_a_signal_during_the_delivery_sets_it_a_limit(self, tmp_path: Path) -> None:
        process = self.start(tmp_path, "echo 1 > out/a", hang="yes", seconds="0.2")
        assert process.stderr is not None
        for line in process.stderr:
            if '"stage":"delivering"' in line:
                break
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == DELIVERY_FAILED
        assert "/out/a (the time for delivery was up)" in said

    @staticmethod
    def start(
        folder: Path, command: str, hang: str = "", seconds: str = "30"
    ) -> subprocess.Popen[str]:
        words = [command, str(folder / "store"), hang, seconds]
        return subprocess.Popen(
            [sys.executable, "-c", RUNNER, *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
