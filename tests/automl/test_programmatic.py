"""`AutoML`: a search that a program drives."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.automl import AutoML
from tao_sdk.automl.journal import JournalError
from tao_sdk.automl.settings import parse_settings
from tao_sdk.automl.workspace import WorkspaceError
from tao_sdk.errors import UnknownOptionError, ValidationError

SCHEMA: dict[str, Any] = {
    "properties": {
        "train": {
            "properties": {
                "lr": {"type": "float", "default": 1e-4, "minimum": 0.0, "automl_enabled": True},
                "kind": {
                    "type": "categorical",
                    "default": "a",
                    "enum": ["a", "b"],
                    "automl_enabled": True,
                },
            }
        }
    }
}
SPEC = {"train": {"lr": 1e-4, "kind": "a"}}


def automl(path: Path, *, resume: bool = False, **settings: Any) -> AutoML:
    settings = {"metric": "loss", "seed": 7, **settings}
    return AutoML(path, "tiny", SPEC, settings, resume=resume, search_schema=SCHEMA)


def loss(specs: Any) -> float:
    return (math.log10(specs["train.lr"]) + 3) ** 2 + (specs["train.kind"] == "a")


def drive(search: AutoML) -> list[Any]:
    while not search.is_complete():
        for one in search.next_recommendation():
            search.report_result(one.id, loss(one))
    return [(one.id, dict(one), one.result) for one in search.get_history()]


@pytest.mark.parametrize("algorithm", ["auto", "bayesian", "random", "tpe", "cmaes", "nsga2"])
def test_each_algorithm_finishes_and_finds_something_better(tmp_path: Path, algorithm: str) -> None:
    search = automl(tmp_path, algorithm=algorithm, automl_max_recommendations=12)
    history = drive(search)
    assert len(history) == 12
    assert len({repr(specs) for _, specs, _ in history}) > 6
    best = search.get_best()
    assert best is not None
    assert best.result == min(value for _, _, value in history)
    assert search.get_progress()["completed"] == 12
    assert "12 trials were made" in search.get_status()["reason"]


def test_the_default_is_the_first_trial(tmp_path: Path) -> None:
    [first] = automl(tmp_path).next_recommendation()
    assert dict(first) == {"train.lr": 1e-4, "train.kind": "a"}
    assert first.source == "default"


def test_as_many_as_may_run_at_once(tmp_path: Path) -> None:
    search = automl(tmp_path, max_concurrent=3, automl_max_recommendations=5)
    first = search.next_recommendation()
    assert [one.id for one in first] == [0, 1, 2]
    assert search.next_recommendation() == []
    search.report_result(1, 0.5)
    search.report_result(2, status="failure")
    assert [one.id for one in search.next_recommendation()] == [3, 4]
    assert not search.is_complete()
    for number in (0, 3, 4):
        search.report_result(number, 1.0)
    assert search.is_complete()
    assert search.get_progress()["failed"] == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan"])
def test_what_is_no_finite_number_is_a_failure(tmp_path: Path, value: Any) -> None:
    search = automl(tmp_path)
    [one] = search.next_recommendation()
    ended = search.report_result(one.id, value)
    assert (ended.status, ended.result, ended.failure_reason) == ("failure", None, "diverged")
    assert search.get_best() is None


def test_the_direction_is_one_everywhere(tmp_path: Path) -> None:
    search = automl(tmp_path, metric="answer_accuracy", automl_max_recommendations=15)
    while not search.is_complete():
        for one in search.next_recommendation():
            search.report_result(one.id, 10 - loss(one))
    best = search.get_best()
    assert best is not None
    assert best.result == max(one.result for one in search.get_history())
    assert best.result > 9.9  # the search went towards it, too


def test_several_objectives_have_a_front(tmp_path: Path) -> None:
    objectives = [{"metric": "loss"}, {"metric": "latency"}]
    search = AutoML(
        tmp_path,
        "tiny",
        SPEC,
        {"objectives": objectives, "automl_max_recommendations": 12, "seed": 1},
        search_schema=SCHEMA,
    )
    while not search.is_complete():
        for one in search.next_recommendation():
            search.report_result(one.id, {"loss": loss(one), "latency": one["train.lr"]})
    front = [one.objective_values for one in search.get_pareto_front()]
    assert 1 < len(front) < 12
    assert not any(
        first[0] < second[0] and first[1] < second[1] for first in front for second in front
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"target": 0.5}, "target 0.5 was reached"),
        ({"plateau": 3}, "no better value in 3 trials"),
    ],
)
def test_it_stops_early(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    search = automl(tmp_path, automl_max_recommendations=200, **settings)
    values = iter([2.0, 1.0, 0.5, *[3.0] * 200])
    while not search.is_complete():
        for one in search.next_recommendation():
            search.report_result(one.id, next(values))
    assert reason in search.get_status()["reason"]
    assert len(search.get_history()) < 10


def test_too_many_failures_end_it(tmp_path: Path) -> None:
    search = automl(tmp_path, max_failed=2)
    while not search.is_complete():
        for one in search.next_recommendation():
            search.report_result(one.id, status="failure")
    assert search.get_status()["reason"] == "2 trials failed"


class TestResume:
    def test_the_history_equals_that_of_a_search_without_interruption(self, tmp_path: Path) -> None:
        whole = drive(automl(tmp_path / "whole", automl_max_recommendations=14))
        search = automl(tmp_path / "cut", automl_max_recommendations=14)
        for count in range(14):
            if count % 3 == 2:  # by the folder that holds the runs, and by the run itself
                where = tmp_path / "cut" if count % 2 else search.folder
                search = automl(where, resume=True, automl_max_recommendations=14)
            [one] = search.next_recommendation()
            search.report_result(one.id, loss(one))
        assert drive(search) == whole

    def test_a_trial_that_was_running_can_be_reported(self, tmp_path: Path) -> None:
        [one] = automl(tmp_path).next_recommendation()
        search = automl(tmp_path, resume=True)
        assert search.next_recommendation() == []
        assert search.report_result(one.id, 1.5).result == 1.5

    def test_the_seed_is_the_searchs_own(self, tmp_path: Path) -> None:
        first = automl(tmp_path, seed=None)
        again = automl(tmp_path, resume=True, seed=None)
        assert first.get_status()["experiment_id"] == again.get_status()["experiment_id"]

    @pytest.mark.parametrize(
        ("change", "difference"),
        [
            ({"metric": "accuracy"}, "objectives: loss minimize before, accuracy maximize now"),
            ({"algorithm": "tpe"}, "algorithm: auto before, tpe now"),
        ],
    )
    def test_another_search_is_refused_with_the_difference(
        self, tmp_path: Path, change: dict[str, Any], difference: str
    ) -> None:
        automl(tmp_path)
        with pytest.raises(ValidationError, match=difference):
            automl(tmp_path, resume=True, **change)

    def test_a_changed_space_is_refused(self, tmp_path: Path) -> None:
        automl(tmp_path)
        with pytest.raises(ValidationError, match=r"train\.kind: a, b before, not searched now"):
            AutoML(
                tmp_path, "tiny", SPEC, {"metric": "loss"}, ["train.lr"], resume=True,
                search_schema=SCHEMA,
            )  # fmt: skip

    def test_nothing_to_resume(self, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceError, match="has no run"):
            automl(tmp_path, resume=True)

    @pytest.mark.parametrize("content", ["", "{}", "[]", '{"version": 9}', "\x00"])
    def test_a_damaged_identity_is_named_and_left_alone(self, tmp_path: Path, content: str) -> None:
        identity = automl(tmp_path).folder / "run.json"
        identity.write_text(content)
        with pytest.raises(WorkspaceError, match=r"run\.json is damaged"):
            automl(tmp_path, resume=True)
        assert identity.read_text() == content

    def test_a_damaged_journal_is_named_and_left_alone(self, tmp_path: Path) -> None:
        search = automl(tmp_path)
        drive(search)
        journal = search.folder / "journal.log"
        damaged = journal.read_bytes().replace(b"{", b"(", 3)
        journal.write_bytes(damaged)
        with pytest.raises(JournalError, match="damaged in line 1"):
            automl(tmp_path, resume=True)
        assert journal.read_bytes() == damaged


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_programmatic import automl, drive
path = Path(sys.argv[2])
drive(automl(path, resume=any(path.glob("run_*/run.json")), automl_max_recommendations=10,
      algorithm="random"))
"""


def test_a_search_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    whole = drive(automl(tmp_path / "whole", automl_max_recommendations=10, algorithm="random"))
    cut, chance = tmp_path / "cut", random.Random(5)
    journal = None
    for _ in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(cut)],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        wanted = (journal.stat().st_size if journal else 0) + chance.randrange(1, 1500)
        while process.poll() is None:
            journal = journal or next(cut.glob("run_*/journal.log"), None)
            if journal is not None and journal.stat().st_size >= wanted:
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
        if process.returncode == 0:
            break
        # A trial that was running when its process ended is still there to be reported.
        search = automl(
            cut, resume=True, automl_max_recommendations=10, algorithm="random"
        ) if journal else None  # fmt: skip
        for one in search.get_history() if search else []:
            if one.status == "running" and search:
                search.report_result(one.id, loss(one))
    final = automl(cut, resume=True, automl_max_recommendations=10, algorithm="random")
    assert drive(final) == whole
    assert len(list(cut.glob("run_*"))) == 1


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"metrik": "loss"}, "did you mean 'metric'"),
            ({"algorithm": "bayes"}, "did you mean 'bayesian'"),
            ({"metric": "kpi"}, "set direction"),
            ({"automl_max_recommendations": 0}, "automl_max_recommendations: must be a whole"),
            ({"automl_max_concurrent": True}, "automl_max_concurrent: must be a whole number"),
            ({"target": "low"}, "target: must be a number"),
            ({"objectives": []}, "objectives must be a list"),
            ({"metric": " / ", "direction": "minimize"}, "must be the name of a metric"),
            ({"objectives": [{"direction": "minimize"}]}, r"objectives\[0\]: must have a metric"),
            ({"objectives": [{"metric": "loss", "wait": 1}]}, "did you mean 'weight'"),
            ({"metric": "loss", "objectives": [{"metric": "loss"}]}, "not both"),
            ({"num_recommendations": 3, "automl_max_recommendations": 4}, "given twice"),
        ],
    )
    def test_mistakes_are_named_before_anything_exists(
        self, given: dict[str, Any], message: str, tmp_path: Path
    ) -> None:
        with pytest.raises((ValidationError, UnknownOptionError), match=message):
            AutoML(tmp_path, "tiny", SPEC, given, search_schema=SCHEMA)
        assert list(tmp_path.iterdir()) == []

    def test_other_names_mean_the_same(self) -> None:
        assert parse_settings({"num_recommendations": 3}).max_trials == 3
        assert parse_settings({"algorithm": "b"}).algorithm == "auto"

    def test_none_means_no_limit(self) -> None:
        assert parse_settings({"automl_max_recommendations": None}).max_trials is None


def test_a_result_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    search = automl(tmp_path)
    [one] = search.next_recommendation()
    for value, message in [(None, "a number"), (True, "a number"), ({"acc": 1}, "no value for")]:
        with pytest.raises(ValidationError, match=message):
            search.report_result(one.id, value)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="no trial 5"):
        search.report_result(5, 1.0)
    search.report_result(one.id, 1.0)
    with pytest.raises(ValidationError, match="has ended already"):
        search.report_result(one.id, 2.0)


def test_what_is_stored_is_private_and_plain(tmp_path: Path) -> None:
    folder = automl(tmp_path).folder
    assert folder.stat().st_mode & 0o077 == 0
    identity = json.loads((folder / "run.json").read_text())
    assert identity["seed"] == 7
    assert identity["objectives"] == [["loss", "minimize"]]


def test_two_processes_that_ask_at_once_get_two_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = automl(tmp_path, max_concurrent=4)
    other = automl(tmp_path, max_concurrent=4, resume=True)
    storage = one._search._study._storage
    make, numbers = storage.create_new_trial, []

    def make_after_the_other(*arguments: Any) -> int:
        numbers.append(other._search.ask().number)
        return make(*arguments)

    monkeypatch.setattr(storage, "create_new_trial", make_after_the_other)
    numbers.append(one._search.ask().number)
    assert sorted(numbers) == [0, 1]
