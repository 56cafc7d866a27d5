"""Fetching results: what is copied, what is left alone, and what no pull may ever do."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pytest

import tao_sdk
from lab.transfers import tree
from tao_sdk.errors import PlatformError, UnsupportedError, ValidationError
from tao_sdk.results import (
    LocalResults,
    Outcome,
    Selection,
    State,
    copy_results,
    open_results,
    plan_pull,
)

SOURCE_FOLDER = str(Path(tao_sdk.__file__).parent.parent)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    (folder / "train" / "empty").mkdir(parents=True)
    (folder / "status.json").write_text("{}\n", encoding="utf-8")
    (folder / "train" / "model.pth").write_bytes(os.urandom(300_000))
    (folder / "train" / "run.sh").write_text("echo hi\n", encoding="utf-8")
    (folder / "train" / "run.sh").chmod(0o750)
    os.utime(folder / "train" / "model.pth", ns=(1_700_000_000_123_456_789,) * 2)
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def pull(
    results: Path, destination: Path, selection: Selection | None = None, *, verify: bool = False
) -> dict[str, State]:
    source = LocalResults(results)
    plan = plan_pull(source, destination, selection, verify=verify)
    return states(copy_results(source, plan))


def states(outcomes: object) -> dict[str, State]:
    return {outcome.path: outcome.state for outcome in outcomes}  # type: ignore[attr-defined]


# ---------------------------------------------------------------- copying


def test_a_pull_copies_contents_modes_times_and_empty_folders(results: Path, copy: Path) -> None:
    (results / "train").chmod(0o755)
    outcome = pull(results, copy)
    assert tree(copy) == tree(results)
    assert set(outcome.values()) == {State.COPIED}


def test_a_second_pull_copies_what_changed_and_nothing_else(results: Path, copy: Path) -> None:
    pull(results, copy)
    (results / "status.json").write_text("[]\n", encoding="utf-8")
    (results / "new").write_text("new", encoding="utf-8")
    kept = (copy / "train" / "model.pth").stat().st_ino
    outcome = pull(results, copy)
    assert [path for path, state in outcome.items() if state is State.COPIED] == [
        "new",
        "status.json",
    ]
    assert (copy / "train" / "model.pth").stat().st_ino == kept
    assert tree(copy) == tree(results)


def test_verify_finds_content_that_size_and_time_hide(results: Path, copy: Path) -> None:
    pull(results, copy)
    damaged = copy / "train" / "model.pth"
    data = bytearray(damaged.read_bytes())
    data[1000] ^= 1
    damaged.write_bytes(data)
    os.utime(damaged, ns=(1_700_000_000_123_456_789,) * 2)
    assert pull(results, copy)["train/model.pth"] is State.PRESENT
    assert pull(results, copy, verify=True)["train/model.pth"] is State.COPIED
    assert tree(copy) == tree(results)
    assert set(pull(results, copy, verify=True).values()) == {State.PRESENT}


def test_what_else_is_at_the_destination_stays(results: Path, copy: Path) -> None:
    copy.mkdir()
    (copy / "mine").write_text("mine", encoding="utf-8")
    pull(results, copy)
    assert (copy / "mine").read_text(encoding="utf-8") == "mine"
    assert not (copy / ".tao-pull").exists()


def test_a_read_only_copy_is_replaced(results: Path, copy: Path) -> None:
    (results / "status.json").chmod(0o400)
    pull(results, copy)
    (results / "status.json").chmod(0o600)
    (results / "status.json").write_text("changed\n", encoding="utf-8")
    (results / "status.json").chmod(0o400)
    pull(results, copy)
    assert tree(copy) == tree(results)


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        ((), (), {"status.json", "train/model.pth", "train/run.sh"}),
        (("*.pth",), (), {"train/model.pth"}),
        (("train",), ("*.pth",), {"train/run.sh"}),
        (("train/",), (), {"train/model.pth", "train/run.sh"}),
        ((), ("train",), {"status.json"}),
        (("train/m*",), (), {"train/model.pth"}),
        (("*.PTH",), (), set()),
    ],
)
def test_patterns(
    results: Path,
    copy: Path,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    wanted: set[str],
) -> None:
    assert set(pull(results, copy, Selection(include, exclude))) == wanted
    folders = {path.name for path in copy.rglob("*") if path.is_dir()}
    assert folders == ({"train"} if any("/" in path for path in wanted) else set()) | (
        {"empty"} if not include and not exclude else set()
    )


def test_bytes_are_counted(results: Path, copy: Path) -> None:
    source, counted = LocalResults(results), []
    plan = plan_pull(source, copy)
    list(copy_results(source, plan, counted.append))
    assert sum(counted) == plan.bytes_to_copy == 300_000 + len("{}\n") + len("echo hi\n")


# ---------------------------------------------------------------- links and other things


def test_links_inside_are_kept_and_others_are_not(results: Path, copy: Path) -> None:
    outside = results.parent / "outside"
    outside.write_text("secret", encoding="utf-8")
    (results / "latest").symlink_to("train/model.pth")
    (results / "train" / "up").symlink_to("../status.json")
    (results / "absolute").symlink_to(results / "train")
    (results / "round").symlink_to("../results/status.json")
    (results / "loop").symlink_to("loop")
    (results / "out").symlink_to(outside)
    (results / "chain").symlink_to("out")
    outcome = pull(results, copy)
    skipped = {path for path, state in outcome.items() if state is State.SKIPPED}
    assert skipped == {"out", "chain"}
    links = {path.name: str(path.readlink()) for path in copy.rglob("*") if path.is_symlink()}
    assert links == {
        "latest": "train/model.pth",
        "up": "../status.json",
        "absolute": "train",
        "round": "status.json",
        "loop": "loop",
    }
    assert set(pull(results, copy).values()) == {State.PRESENT, State.SKIPPED}


def test_pipes_and_sockets_are_skipped(results: Path, copy: Path) -> None:
    os.mkfifo(results / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(results)  # the path of a socket may be short only
        try:
            listener.bind("socket")
        finally:
            os.chdir(before)
        outcome = pull(results, copy)
    assert {path for path, state in outcome.items() if state is State.SKIPPED} == {"pipe", "socket"}


def test_nothing_is_written_through_links_at_the_destination(results: Path, copy: Path) -> None:
    elsewhere = copy.parent / "elsewhere"
    elsewhere.mkdir()
    copy.mkdir()
    (copy / "train").symlink_to(elsewhere)
    (copy / "status.json").symlink_to(elsewhere / "victim")
    outcome = pull(results, copy)
    assert outcome["train/model.pth"] is State.FAILED
    assert outcome["status.json"] is State.COPIED
    assert not (copy / "status.json").is_symlink()
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_the_workspace_is_refused(results: Path, copy: Path) -> None:
    copy.mkdir()
    (copy / ".tao-pull").symlink_to(copy.parent)
    with pytest.raises(ValidationError, match="in the way"):
        pull(results, copy)


def test_a_folder_in_the_way_of_a_file_is_reported(results: Path, copy: Path) -> None:
    (copy / "status.json").mkdir(parents=True)
    outcome = pull(results, copy)
    assert outcome["status.json"] is State.FAILED
    assert outcome["train/model.pth"] is State.COPIED


@pytest.mark.usefixtures("permissions_apply")
@pytest.mark.parametrize("name", ["train", "train/model.pth"])
def test_what_cannot_be_read_is_reported(results: Path, copy: Path, name: str) -> None:
    (results / name).chmod(0)
    try:
        outcome = pull(results, copy, Selection(include=("*.pth", "status.json")))
    finally:
        (results / name).chmod(0o700)
    assert outcome[name] is State.FAILED
    assert outcome["status.json"] is State.COPIED


# ---------------------------------------------------------------- a job that goes on meanwhile


class Restless(LocalResults):
    """Results that change while they are read."""

    def __init__(self, folder: Path, change: Callable[[Path], None], times: int) -> None:
        super().__init__(folder)
        self._folder, self._change, self._left = folder, change, times

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        opened = super().open(path)
        if path == "status.json" and self._left > 0:
            self._left -= 1
            self._change(self._folder / path)
        return opened


def _append(path: Path) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("more\n")


def _restless_pull(
    results: Path, copy: Path, change: Callable[[Path], None], times: int
) -> dict[str, State]:
    source = Restless(results, change, times)
    return states(copy_results(source, plan_pull(source, copy)))


def test_a_file_that_changes_is_copied_again(results: Path, copy: Path) -> None:
    assert _restless_pull(results, copy, _append, 1)["status.json"] is State.COPIED
    assert tree(copy) == tree(results)


def test_a_file_that_never_rests_is_reported_and_not_left_half(results: Path, copy: Path) -> None:
    outcome = _restless_pull(results, copy, _append, 100)
    assert outcome["status.json"] is State.CHANGED
    assert State.CHANGED.incomplete
    assert not (copy / "status.json").exists()
    assert outcome["train/model.pth"] is State.COPIED
    assert pull(results, copy)["status.json"] is State.COPIED
    assert tree(copy) == tree(results)


def test_a_file_that_goes_away_is_not_missed(results: Path, copy: Path) -> None:
    source = LocalResults(results)
    plan = plan_pull(source, copy)
    (results / "status.json").unlink()
    outcome = states(copy_results(source, plan))
    assert outcome["status.json"] is State.GONE
    assert not State.GONE.incomplete


def test_a_destination_that_goes_away_is_a_failure(results: Path, copy: Path) -> None:
    source = LocalResults(results)
    outcomes = copy_results(source, plan_pull(source, copy))
    first = next(outcomes)
    assert first == Outcome("status.json", State.COPIED, 3)
    (copy / ".tao-pull" / "lock").rename(copy.parent / "lock")
    (copy / ".tao-pull").rmdir()
    assert set(states(outcomes).values()) == {State.FAILED}


# ---------------------------------------------------------------- killed, doubled, refused


_SLOW_PULL = """
import errno, fcntl, os, sys, time
from pathlib import Path
from tao_sdk.results import LocalResults, copy_results, plan_pull

class Slow(LocalResults):
    def open(self, path):
        file = super().open(path)
        if path == "train/model.pth":
            read, given = file.read, []
            def some(size):
                if given:
                    print("half", flush=True)
                    time.sleep(600)
                given.append(size)
                return read(100_000)
            file.read = some
        return file

def refused(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

if sys.argv[3] == "refused":
    fcntl.flock = refused
source = Slow(Path(sys.argv[1]))
for outcome in copy_results(source, plan_pull(source, Path(sys.argv[2]))):
    pass
"""


@pytest.fixture(params=["granted", "refused"])
def file_locking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the file system has locks; some Lustre mounts answer `flock` with ENOSYS."""

    def refused(*_: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if request.param == "refused":
        monkeypatch.setattr(fcntl, "flock", refused)
    return str(request.param)


def _slow_pull(results: Path, copy: Path, locks: str) -> subprocess.Popen[str]:
    """A pull by another process that stops in the middle of the model."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW_PULL, str(results), str(copy), locks],
        env={**os.environ, "PYTHONPATH": SOURCE_FOLDER},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    return process


def test_a_killed_pull_is_finished_by_the_next(
    results: Path, copy: Path, file_locking: str
) -> None:
    process = _slow_pull(results, copy, file_locking)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (copy / "status.json").exists()
    assert not (copy / "train" / "model.pth").exists()
    assert (copy / ".tao-pull" / "part").exists()
    outcome = pull(results, copy)
    assert outcome["status.json"] is State.PRESENT
    assert outcome["train/model.pth"] is State.COPIED
    assert tree(copy) == tree(results)


def test_two_pulls_do_not_write_to_one_place(results: Path, copy: Path, file_locking: str) -> None:
    process = _slow_pull(results, copy, file_locking)
    try:
        with pytest.raises(ValidationError, match="another pull writes to"):
            pull(results, copy)
        assert (copy / ".tao-pull" / "part").exists()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("file_locking", ["refused"], indirect=True)
def test_a_pull_of_another_machine_is_not_interfered_with(
    results: Path, copy: Path, file_locking: str
) -> None:
    lock = copy / ".tao-pull" / "lock-access"
    lock.parent.mkdir(parents=True)
    lock.write_text("elsewhere/boot/ns|7|1")
    with pytest.raises(ValidationError, match=r"on another machine, remove .*/\.tao-pull$"):
        pull(results, copy)


def test_pulls_that_begin_and_end_together(results: Path, copy: Path, file_locking: str) -> None:
    """One after the other has the place; the folder goes with the last one."""
    wrong: list[BaseException] = []

    def repeat() -> None:
        for _ in range(10):
            try:
                pull(results, copy)
            except ValidationError as error:
                if "another pull writes to" not in str(error):
                    wrong.append(error)
            except BaseException as error:  # noqa: BLE001 - shown by the assertion
                wrong.append(error)

    threads = [threading.Thread(target=repeat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert tree(copy) == tree(results)


def test_destinations_that_cannot_be_right(results: Path, copy: Path) -> None:
    for destination in (results, results / "train" / "copy"):
        with pytest.raises(ValidationError, match="lies in the results"):
            pull(results, destination)
    copy.write_text("a file", encoding="utf-8")
    with pytest.raises(ValidationError, match="not a folder"):
        pull(results, copy)


def test_too_little_space_is_noticed_before_anything_is_written(results: Path, copy: Path) -> None:
    with (results / "huge").open("wb") as file:
        file.truncate(shutil.disk_usage(results).free + 2**20)  # a hole: takes no space here
    with pytest.raises(PlatformError, match="make room"):
        pull(results, copy)
    assert not copy.exists()


def test_planning_writes_nothing(results: Path, copy: Path) -> None:
    before = tree(results.parent)
    plan_pull(LocalResults(results), copy)
    assert tree(results.parent) == before


# ---------------------------------------------------------------- where results are


def test_results_by_their_addresses(results: Path) -> None:
    place = str(results.resolve())
    assert open_results("s3://bucket/x", str(results)).address == place
    assert open_results(f"file://{results}", "").address == place


@pytest.mark.parametrize(
    ("results_dir", "error"),
    [
        ("", ValidationError),
        ("gs://bucket/results", UnsupportedError),
        ("/lustre/of/another/machine", UnsupportedError),
        ("file:///no/such/folder", ValidationError),
    ],
)
def test_results_that_cannot_be_reached(results_dir: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        open_results(results_dir, "")


def test_a_local_folder_that_is_not_there() -> None:
    with pytest.raises(ValidationError, match="not there"):
        open_results("/no/such/folder", "/no/such/folder")


def test_folders_behind_a_link_keep_their_modes(results: Path, copy: Path, tmp_path: Path) -> None:
    """A link in the destination leads outside: nothing there is touched."""
    outside = tmp_path / "outside"
    (outside / "empty").mkdir(parents=True)
    (outside / "empty").chmod(0o700)
    (results / "train" / "empty").chmod(0o777)
    copy.mkdir()
    (copy / "train").symlink_to(outside)
    assert pull(results, copy)["train/empty"] is State.FAILED
    assert stat.S_IMODE((outside / "empty").stat().st_mode) == 0o700
