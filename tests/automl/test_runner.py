"""`AutoMLRunner`: trials as jobs of the local platform."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuned_model import write_bank

from tao_automl.runner import AutoMLRunner
from tao_sdk import LocalSDK
from tao_sdk.automl import format_result, query_status
from tao_sdk.automl.executor import MetricMissingError
from tao_sdk.automl.runner import NoTrialSucceededError
from tao_sdk.errors import StoreError, TaoError, ValidationError
from tao_sdk.platforms.conformance import eventually


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSDK]:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("S3_BUCKET_NAME", raising=False)
    with LocalSDK(work_dir=tmp_path / "jobs") as sdk:
        yield sdk
        for job in sdk.list_jobs():
            sdk.cancel_job(job.id)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_bank(tmp_path / "bank")


def tune(sdk: LocalSDK, model: Path, tmp_path: Path, **more: Any) -> dict[str, Any]:
    settings = {"metric": "val_loss", "seed": 3, "automl_max_recommendations": 4}
    settings |= more.pop("settings", {})
    runner = AutoMLRunner(sdk, model, poll_interval=0.2)
    arguments: dict[str, Any] = {
        "automl_settings": settings,
        "workspace_path": tmp_path / "work",
        "gpu_count": 0,
        **more,
    }
    return runner.run(**arguments)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A whole search, with everything that was called back."""
    folder = tmp_path_factory.mktemp("whole")
    seen: list[Any] = []
    with (
        pytest.MonkeyPatch.context() as patch,
        LocalSDK(state_file=folder / "state.json", work_dir=folder / "jobs") as sdk,
    ):
        patch.delenv("S3_BUCKET_NAME", raising=False)
        result = tune(
            sdk,
            write_bank(folder / "bank"),
            folder,
            settings={"automl_max_concurrent": 2, "automl_max_recommendations": 6},
            on_recommendation=lambda one: seen.append(("asked", one.id)),
            on_result=lambda one, value, status: seen.append((status, one.id, value)),
            baseline_fn=lambda specs: specs["train"]["lr"] * 1e5 + 9,
            final_eval_fn=lambda best, job_id: {"val_loss": best.result},
        )
        jobs = len(sdk.list_jobs())
    return {"result": result, "seen": seen, "jobs": jobs, "folder": folder}


class TestRun:
    @pytest.mark.seed("000.24")
    def test_the_best_trial_wins(self, done: dict[str, Any]) -> None:
        result = done["result"]
        values = [one["metric"] for one in result["history"]]
        assert len(values) == 6 == done["jobs"]
        assert result["best"]["metric_value"] == min(values)
        assert values[0] == pytest.approx(4.0)  # the default, 1e-5
        assert set(result["best"]["specs"]) == {"train.lr"}  # epochs are the budget
        assert result["progress"]["reason"] == "6 trials were made"

    def test_callbacks_hear_of_each_trial(self, done: dict[str, Any]) -> None:
        assert [one[1] for one in done["seen"] if one[0] == "asked"] == list(range(6))
        assert sorted(one[1] for one in done["seen"] if one[0] == "success") == list(range(6))

    def test_it_is_compared_with_the_baseline(self, done: dict[str, Any]) -> None:
        baseline = done["result"]["baseline"]
        assert baseline["metric_value"] == pytest.approx(10.0)
        assert baseline["comparison_to_best"]["improved"] is True
        assert done["result"]["final_evaluation"]["status"] == "measured"

    def test_its_state_can_be_read_from_the_files(self, done: dict[str, Any]) -> None:
        status = query_status(done["folder"] / "work")
        assert status["progress"]["completed"] == status["progress"]["total"] == 6
        assert status["best"]["metric_value"] == done["result"]["best"]["metric_value"]
        assert status["active_jobs"] == []
        assert status["recommendations"][0]["source"] == "default"
        assert "error" in query_status(done["folder"] / "jobs")

    def test_the_result_reads_well(self, done: dict[str, Any]) -> None:
        text = format_result(done["result"])
        assert "Best: trial" in text
        assert "train.lr" in text
        assert "Baseline: 10" in text


def test_trials_run_at_the_same_time(sdk: LocalSDK, model: Path, tmp_path: Path) -> None:
    """Three trainings wait for a file that is written once all three run."""
    gate = tmp_path / "gate"

    def open_gate() -> None:
        eventually(lambda: sum(job.status == "Running" for job in sdk.list_jobs()) == 3, 60)
        gate.touch()

    opener = threading.Thread(target=open_gate)
    opener.start()
    result = tune(
        sdk,
        model,
        tmp_path,
        settings={"automl_max_concurrent": 3, "automl_max_recommendations": 3},
        env_vars={"MINI_WAIT": str(gate)},
    )
    opener.join()
    assert result["progress"]["succeeded"] == 3


def test_failures_and_diverged_trainings_are_no_results(
    sdk: LocalSDK, model: Path, tmp_path: Path
) -> None:
    result = tune(
        sdk,
        model,
        tmp_path,
        settings={"automl_max_recommendations": 8, "algorithm": "random"},
        spec_overrides={"train.fails_above": 2e-5, "train.diverges_above": 8e-5},
        custom_param_ranges={"train.lr": {"valid_min": 1e-6, "valid_max": 1e-3, "log": True}},
    )
    states = {one["failure_reason"] or one["status"] for one in result["history"]}
    assert states == {"success", "diverged", "ERR_PROGRAM"}
    assert result["best"]["metric_value"] > 0
    assert all((one["metric"] is None) == (one["status"] == "failure") for one in result["history"])


def test_equal_failures_stop_it(sdk: LocalSDK, model: Path, tmp_path: Path) -> None:
    with pytest.raises(NoTrialSucceededError, match="the last 3 trials failed alike: ERR_PROGRAM"):
        tune(sdk, model, tmp_path, spec_overrides={"train.fails_above": 1e-9})
    assert len(sdk.list_jobs()) == 3


def test_a_metric_that_is_never_printed_stops_after_the_first_trial(
    sdk: LocalSDK, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(MetricMissingError, match=r"accuracy; its log has these: .*train_loss"):
        tune(sdk, model, tmp_path, settings={"metric": "accuracy"})
    assert len(sdk.list_jobs()) == 1


def test_an_evaluation_of_the_callers_own_decides(
    sdk: LocalSDK, model: Path, tmp_path: Path
) -> None:
    result = tune(
        sdk,
        model,
        tmp_path,
        settings={"metric": "accuracy", "automl_max_recommendations": 3},
        eval_fn=lambda one, job_id: one["train.lr"] * 1e5 if job_id else None,
    )
    best = max(one["metric"] for one in result["history"])
    assert result["best"]["metric_value"] == best


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"automl_setings": {}}, "automl_setings"),
            ({"gpu_cuont": 1}, "did you mean 'gpu_count'"),
            ({"spec_overrides": {"train.lrr": 1}}, "no key 'train.lrr'"),
            ({"automl_hyperparameters": ["train.lrr"]}, "did you mean 'train.lr'"),
            ({"settings": {"metrik": "loss"}}, "did you mean 'metric'"),
            ({"settings": {"algorithm": "hyperband"}}, "no algorithm 'hyperband'"),
        ],
    )
    def test_before_anything_exists(
        self, given: dict[str, Any], message: str, sdk: LocalSDK, model: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(TaoError, match=message):
            tune(sdk, model, tmp_path, **given)
        assert sdk.list_jobs() == []
        assert not (tmp_path / "work").exists()

    def test_a_second_controller_is_told_of_the_first(
        self, sdk: LocalSDK, model: Path, tmp_path: Path
    ) -> None:
        def resume(*_: object) -> None:
            with pytest.raises(StoreError, match="is being tuned already, by"):
                tune(sdk, model, tmp_path, resume=True)

        tune(
            sdk,
            model,
            tmp_path,
            settings={"automl_max_recommendations": 1},
            on_recommendation=resume,
        )

    def test_jobs_of_another_store_are_not_submitted_again(
        self, sdk: LocalSDK, model: Path, tmp_path: Path
    ) -> None:
        tune(sdk, model, tmp_path, settings={"automl_max_recommendations": 1})
        with (
            LocalSDK(state_file=tmp_path / "other.json", work_dir=tmp_path / "jobs") as other,
            pytest.raises(ValidationError, match="resume it with that platform and state_file"),
        ):
            tune(other, model, tmp_path, resume=True)

    def test_looking_changes_no_file(self, sdk: LocalSDK, model: Path, tmp_path: Path) -> None:
        tune(sdk, model, tmp_path, settings={"automl_max_recommendations": 1})
        [run] = (tmp_path / "work").iterdir()
        (run / "journal.log").unlink()
        before = sorted(one.name for one in run.iterdir())
        assert "error" in query_status(run)
        assert sorted(one.name for one in run.iterdir()) == before


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_runner import tune
from tao_sdk import LocalSDK
folder, resume = Path(sys.argv[2]), bool(int(sys.argv[3]))
with LocalSDK(work_dir=folder / "jobs") as sdk:
    tune(sdk, folder / "bank/skills/models/tao-train-mini", folder, resume=resume,
         settings={"automl_max_concurrent": 2, "automl_max_recommendations": 6})
"""


def test_a_controller_that_is_killed_finds_its_jobs_again(
    sdk: LocalSDK, model: Path, tmp_path: Path
) -> None:
    """Killed as its journal grows: every trial ends, and exactly one job ran for it."""

    def start(resume: bool) -> subprocess.Popen[bytes]:
        here = str(Path(__file__).parent)
        arguments = [sys.executable, "-c", PROGRAM, here, str(tmp_path), str(int(resume))]
        return subprocess.Popen(arguments, env=dict(os.environ))

    def size() -> int:
        journal = next((tmp_path / "work").glob("run_*/journal.log"), None)
        return journal.stat().st_size if journal else 0

    resume = False
    for _ in range(4):
        before = size()
        process = start(resume)
        eventually(lambda: process.poll() is not None or size() > before + 900, 60)  # noqa: B023 - called at once
        process.send_signal(signal.SIGKILL)
        process.wait()
        resume = size() > 0
    assert start(resume).wait(timeout=120) == 0
    status = query_status(tmp_path / "work")
    trials = status["recommendations"]
    assert [one["status"] for one in trials] == ["success"] * 6
    jobs = {job.id: job.status for job in sdk.list_jobs()}
    assert {one["job_id"] for one in trials} == {
        job for job, state in jobs.items() if state == "Complete"
    }
    # Killed in the middle of a submission: settled as never submitted, and tried again.
    assert set(jobs.values()) <= {"Complete", "Error"}
    assert len(list((tmp_path / "work").glob("run_*"))) == 1
