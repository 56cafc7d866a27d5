"""The file in which a search is kept."""

from __future__ import annotations

import json
import multiprocessing
import stat
from pathlib import Path
from typing import Any

import optuna
import pytest

from tao_sdk.automl.journal import Journal, JournalError


def entries(path: Path) -> list[dict[str, Any]]:
    return list(Journal(path).read_logs(0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.log"


def test_what_was_written_is_read_from_any_number(path: Path) -> None:
    writer, reader = Journal(path), Journal(path)
    writer.append_logs([{"n": 0}, {"n": 1}])
    assert [one["n"] for one in reader.read_logs(0)] == [0, 1]
    writer.append_logs([{"n": 2}])
    assert [one["n"] for one in reader.read_logs(2)] == [2]
    assert [one["n"] for one in reader.read_logs(1)] == [1, 2]
    assert list(reader.read_logs(3)) == []
    assert [one["n"] for one in Journal(path).read_logs(2)] == [2]


def test_only_its_owner_may_read_it(path: Path) -> None:
    Journal(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_write_that_was_cut_off_at_any_byte_never_happened(path: Path) -> None:
    Journal(path).append_logs([{"n": 0}, {"text": "ä"}])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        kept = whole[:length].count(b"\n")
        assert len(entries(path)) == kept
        Journal(path).append_logs([{"n": 9}])
        assert len(entries(path)) == kept + 1
        assert entries(path)[-1] == {"n": 9}


def test_a_reader_that_saw_a_torn_line_reads_on(path: Path) -> None:
    Journal(path).append_logs([{"n": 0}])
    with path.open("ab") as file:
        file.write(b'{"n": 1')
    reader = Journal(path)
    assert [one["n"] for one in reader.read_logs(0)] == [0]
    Journal(path).append_logs([{"n": 2}])
    assert [one["n"] for one in reader.read_logs(1)] == [2]


@pytest.mark.parametrize("line", [b"{broken}", b"[1]", b"\xff\xfe", b""])
def test_damage_inside_is_named_and_left_alone(path: Path, line: bytes) -> None:
    damaged = b'{"n":0}\n' + line + b'\n{"n":2}\n'
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match="damaged in line 2"):
        entries(path)
    assert path.read_bytes() == damaged


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot write"):
        Journal(tmp_path / "missing" / "journal.log")
    target = tmp_path / "elsewhere"
    link = tmp_path / "journal.log"
    link.symlink_to(target)
    with pytest.raises(JournalError, match="cannot write"):
        Journal(link)
    assert not target.exists()


def append(path: Path, writer: int) -> None:
    journal = Journal(path)
    for number in range(20):
        journal.append_logs([{"writer": writer, "number": number}, {"writer": writer}])


def test_processes_do_not_mix_their_lines(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append, args=(path, writer)) for writer in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    found = entries(path)
    assert len(found) == 3 * 40
    for writer in range(3):
        numbers = [one["number"] for one in found if one["writer"] == writer and "number" in one]
        assert numbers == list(range(20))


def test_optuna_reads_the_file_as_its_own(path: Path) -> None:
    study = optuna.create_study(
        study_name="s", storage=optuna.storages.JournalStorage(Journal(path))
    )
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    theirs = optuna.storages.journal.JournalFileBackend(str(path))
    same = optuna.load_study(study_name="s", storage=optuna.storages.JournalStorage(theirs))
    assert [trial.value for trial in same.trials] == [trial.value for trial in study.trials]
    assert all(json.loads(line) for line in path.read_text().splitlines())
