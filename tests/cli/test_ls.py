"""`ls --all` of a large store: printed page by page, never whole in memory."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from tao_sdk.cli import main
from tao_sdk.job_store import JobStore, NewJob

FEW, MANY = 1_500, 6_000


def store_of(folder: Path, count: int) -> str:
    """A state file with so many jobs, none of which a platform needs to be asked about."""
    folder.mkdir()
    with JobStore(folder / "s.tao.db") as store:
        names = (f"job-{number:06}" for number in range(count))
        request = {"command": "python train.py --lr 0.1 " * 20}
        store.begin_submissions(
            [
                NewJob(name, "dino", "train", "local", "", name, "", request=request)
                for name in names
            ]
        )
    return str(folder / "s.json")


def peak(words: list[str]) -> int:
    """The most memory that a command had, in bytes."""
    tracemalloc.start()
    try:
        assert main(words) == 0
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", [[], ["--json"], ["--quiet"]], ids=str)
def test_memory_does_not_grow_with_the_store(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], form: list[str]
) -> None:
    few, many = store_of(tmp_path / "few", FEW), store_of(tmp_path / "many", MANY)
    with capfd.disabled(), open(os.devnull, "w") as nothing, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", nothing)
        main(["--state", few, *form, "ls", "--no-refresh"])  # what is imported only once
        small, large = (
            peak(["--state", state, *form, "ls", "-a", "--no-refresh"]) for state in (few, many)
        )
    assert large < 1.3 * small, f"{small} bytes for {FEW} jobs, {large} for {MANY}"


def test_pages_make_one_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = store_of(tmp_path / "few", FEW)
    newest_first = [f"job-{number:06}" for number in reversed(range(FEW))]
    main(["--state", state, "ls", "-a", "--no-refresh"])
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.startswith("JOB\t")
    assert [line.split("\t")[0] for line in lines] == newest_first
    main(["--state", state, "--json", "ls", "-a", "--no-refresh"])
    [line] = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert [job["job_id"] for job in document.pop("jobs")] == newest_first
    assert document == {"schema": "tao-sdk/1", "kind": "jobs", "more": False}
    main(["--state", state, "--json", "ls", "-a", "--no-refresh", "-s", "error"])
    assert json.loads(capsys.readouterr().out)["jobs"] == []
