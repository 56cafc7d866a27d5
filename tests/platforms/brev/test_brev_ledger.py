"""The ledger of instances: no change is lost, and what is given up stays so."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tao_sdk.platforms.brev.ledger import (
    DELETED,
    IN_USE,
    KEPT,
    ORDERED,
    UNWANTED,
    Entry,
    Ledger,
)
from tao_sdk.process_identity import ProcessIdentity

ENTRY = Entry("tao-1", "job-1", "g5.xlarge", 2.0, time.time())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "instances")
    assert made.order(ENTRY)
    return made


def current(ledger: Ledger) -> Entry:
    entry = ledger.get("tao-1")
    assert entry is not None
    return entry


_ADD = """
import sys
from dataclasses import replace
from pathlib import Path
from tao_sdk.platforms.brev.ledger import Ledger

ledger = Ledger(Path(sys.argv[1]))
for number in range(25):
    job = f"{sys.argv[2]}-{number}"
    ledger.update("tao-1", lambda old: replace(old, jobs=(*old.jobs, job)))
"""


def test_no_change_of_many_processes_is_lost(ledger: Ledger, tmp_path: Path) -> None:
    words = [sys.executable, "-c", _ADD, str(tmp_path / "instances")]
    writers = [subprocess.Popen([*words, str(number)]) for number in range(4)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    assert len(set(current(ledger).jobs)) == 100


@pytest.mark.parametrize("state", [UNWANTED, DELETED])
@pytest.mark.parametrize("wanted", [ORDERED, IN_USE, KEPT])
def test_what_is_given_up_is_never_wanted_again(ledger: Ledger, state: str, wanted: str) -> None:
    """It may be deleted at any moment: a job that came to it would go with it."""
    ledger.change("tao-1", state=state, why="its job has ended")
    after = ledger.change("tao-1", state=wanted, why="")
    assert after == current(ledger)
    assert (current(ledger).state, current(ledger).why) == (state, "its job has ended")


def test_an_order_is_recorded_once_with_its_owner(ledger: Ledger, tmp_path: Path) -> None:
    ledger.change("tao-1", state=KEPT)
    assert not ledger.order(ENTRY), "an earlier order is not forgotten"
    assert current(ledger).state == KEPT
    assert current(ledger).owner == str(ProcessIdentity.current())
    for path in (tmp_path / "instances").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_an_instance_of_others_gets_no_entry(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.change("box", state=UNWANTED) is None
    assert Ledger(tmp_path / "new").change("box", state=UNWANTED) is None
    assert [entry.name for entry in ledger.entries()] == ["tao-1"]
    assert not (tmp_path / "new").exists()


def test_other_versions(ledger: Ledger, tmp_path: Path) -> None:
    older = asdict(ENTRY)
    for name in ("jobs", "owner", "renewed_at"):
        del older[name]
    path = tmp_path / "instances" / "tao-1.json"
    path.write_text(json.dumps({**older, "of_a_newer_version": 1}))
    assert current(ledger) == ENTRY


@pytest.mark.parametrize("text", ["", "[]", '{"name": 7}', '{"name": "tao-1", "job_id": "j"}'])
def test_a_damaged_entry_stays_known(ledger: Ledger, tmp_path: Path, text: str) -> None:
    """Its instance may cost money, and may hold results."""
    (tmp_path / "instances" / "tao-1.json").write_text(text)
    [entry] = ledger.entries()
    assert (entry.name, entry.state, entry.needs_attention) == ("tao-1", KEPT, False)
    assert "tao-1.json is damaged" in entry.why


class TestOwner:
    """An instance that is being made belongs to the process that ordered it."""

    @pytest.fixture
    def ordered(self) -> Entry:
        owner = str(ProcessIdentity.current())
        return replace(ENTRY, state=ORDERED, owner=owner, renewed_at=0.0)

    def test_that_lives(self, ordered: Entry) -> None:
        assert ordered.overdue == ""

    @pytest.mark.parametrize("owner", ["", "gone"])
    def test_that_is_gone(self, ordered: Entry, owner: str) -> None:
        gone = ProcessIdentity.current()._replace(started="1")
        assert "its client was gone" in replace(ordered, owner=owner and str(gone)).overdue

    def test_on_another_machine(self, ordered: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
        """It cannot be examined, and counts as gone after a long silence, whatever the lease."""
        monkeypatch.setenv("TAO_SDK_SUBMIT_LEASE_SECONDS", "1")
        elsewhere = replace(ordered, owner=f"elsewhere/b00/x|{os.getpid()}|1")
        assert replace(elsewhere, renewed_at=time.time() - 1200).overdue == ""
        assert replace(elsewhere, renewed_at=time.time() - 2000).overdue != ""

    def test_once_it_has_a_job(self, ordered: Entry) -> None:
        assert replace(ordered, state=IN_USE, owner="").overdue == ""


class TestAfterJobs:
    """What becomes of an instance when jobs on it have ended."""

    def after(self, others: int = 0, held: bool = False, **values: object) -> Entry:
        entry = replace(ENTRY, jobs=("a", "b"), **values)  # type: ignore[arg-type]  # fields of it
        return entry.without(["a", "b"], {"a": "the results are on it"} if held else {}, others)

    def test_nothing_keeps_it(self) -> None:
        assert (self.after().state, self.after().why) == (UNWANTED, "its job has ended")

    def test_other_jobs_of_the_store(self) -> None:
        entry = replace(ENTRY, jobs=("a", "b")).without(["a"], {"a": "results"}, 7)
        assert (entry.state, entry.jobs, entry.holds) == (IN_USE, ("b",), ("a",))

    def test_other_jobs_keep_it(self) -> None:
        assert self.after(others=2).why == "2 other jobs are on it"
        assert "is kept ($2.00 an hour" in self.after(others=2).fate

    def test_results_keep_it(self) -> None:
        kept = self.after(held=True)
        assert (kept.state, kept.why, kept.holds) == (KEPT, "the results are on it", ("a",))

    def test_the_user_keeps_it(self) -> None:
        assert self.after(keep=True).why == "keep=True"

    def test_what_is_given_up_stays_so(self) -> None:
        assert self.after(keep=True, state=DELETED).state == DELETED
