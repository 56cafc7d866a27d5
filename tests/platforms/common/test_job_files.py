"""What platforms keep of their jobs beside the store."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tao_sdk.errors import DamagedRowError
from tao_sdk.platforms.brev.status import End
from tao_sdk.platforms.common.job_files import CANCELED, JobFiles, OutcomeFiles
from tao_sdk.platforms.docker.status import Outcome

ENDED = Outcome(3, "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:05+00:00", log_tail="bye")


def docker_files(folder: Path) -> OutcomeFiles[Outcome]:
    return OutcomeFiles(folder, Outcome, outcome_name="outcome.json", log_name="log.frames")


def test_what_the_version_before_kept_is_read(tmp_path: Path) -> None:
    """Its files, literally: names, content, marks."""
    job = tmp_path / "job"
    job.mkdir()
    (job / "outcome.json").write_text(
        '{"ended_at": "b", "error": "", "exit_code": 3, "log_tail": "x", "oom_killed": true, '
        '"started_at": "a"}'
    )
    (job / "log.frames").write_bytes(b"\1frames")
    (job / "canceled").touch()
    (job / "end.json").write_text(
        '{"canceled": false, "ended_at": "b", "exit_code": 0, "log_tail": "", "oom_killed": false, '
        '"started_at": "a", "why": ""}'
    )
    files = docker_files(tmp_path)
    assert files.outcome("job") == Outcome(3, "a", "b", oom_killed=True, log_tail="x")
    assert files.log("job").read_bytes() == b"\1frames"
    assert files.is_marked("job", CANCELED)
    assert ends(tmp_path).outcome("job") == End(0, "a", "b")


def ends(folder: Path) -> OutcomeFiles[End]:
    return OutcomeFiles(folder, End, outcome_name="end.json", log_name="log")


def test_what_a_newer_version_adds_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "end.json").write_text('{"exit_code": 0, "why": "", "node": "n1"}')
    assert ends(tmp_path).outcome("job") == End(0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"exit_code": "0"}', "its exit_code cannot be '0'"),
        ('{"exit_code": true}', "its exit_code cannot be True"),
        ('{"exit_code": 0, "why": ["x"]}', r"its why cannot be \['x'\]"),
        ('{"exit_code": 0, "canceled": 1}', "its canceled cannot be 1"),
        ('{"exit_code": 1e999}', "its exit_code cannot be inf"),
        ("{}", "it has no exit_code"),
        ("[]", "it holds no JSON object"),
        ("[" * 100_000, "it is not JSON"),
        ("", "it is not JSON"),
    ],
)
def test_damage_is_a_sentence(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "end.json").write_text(text)
    with pytest.raises(DamagedRowError, match=rf"job/end\.json is damaged: {complaint}"):
        ends(tmp_path).outcome("job")


def test_everything_is_private(tmp_path: Path) -> None:
    files = docker_files(tmp_path / "state")
    files.keep("job", ENDED, [b"log"])
    files.mark("job", CANCELED)
    for path in tmp_path.glob("state/job/*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((tmp_path / "state/job").stat().st_mode) == 0o700


def test_the_first_outcome_stays_with_its_log(tmp_path: Path) -> None:
    files = docker_files(tmp_path)

    def slow() -> Iterator[bytes]:
        yield b"of the slow watcher"
        files.keep("job", ENDED, [b"of the fast one"])

    files.keep("job", Outcome(0, "", ""), slow())
    assert files.outcome("job") == ENDED
    assert files.log("job").read_bytes() == b"of the fast one"
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == [
        "log.frames",
        "outcome.json",
    ]


def test_a_log_that_breaks_off_is_not_there(tmp_path: Path) -> None:
    files = docker_files(tmp_path)

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the daemon went away")

    with pytest.raises(OSError, match="went away"):
        files.keep("job", ENDED, broken())
    assert files.outcome("job") is None
    assert list((tmp_path / "job").iterdir()) == []


def test_the_outcome_is_json_that_other_versions_read(tmp_path: Path) -> None:
    files = docker_files(tmp_path)
    files.keep("job", ENDED, ())
    assert json.loads(files.path("job", "outcome.json").read_text()) == asdict(ENDED)


def test_marks(tmp_path: Path) -> None:
    files = JobFiles(tmp_path / "state")
    assert files.marked(["one"], CANCELED) == set()
    files.mark("one", CANCELED)
    files.mark("two", "fenced")
    (tmp_path / "state" / CANCELED).touch()
    assert not files.is_marked("", CANCELED)  # the folder itself is no job
    assert files.marked(["one", "two", "three"], CANCELED) == {"one"}
    files.unmark("one", CANCELED)
    files.unmark("one", CANCELED)
    assert not files.is_marked("one", CANCELED)


def test_files_by_name_and_removal(tmp_path: Path) -> None:
    files = JobFiles(tmp_path)
    for pod in ("pod-b", "pod-a.0"):
        assert files.write("job", f"{pod}.log", [pod.encode()])
    assert list(files.named("job", ".log")) == ["pod-a.0", "pod-b"]
    files.remove("job")
    files.remove("job")
    assert files.named("job", ".log") == {}
