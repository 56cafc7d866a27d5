"""What a search is at, from its files alone, and its result as text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna

from tao_sdk.automl.journal import Journal
from tao_sdk.automl.search import LIMIT, TrialView, view
from tao_sdk.automl.workspace import find_run
from tao_sdk.errors import StoreError

__all__ = ["format_result", "query_status"]


def query_status(workspace_path: str | Path) -> dict[str, Any]:
    """The state of a search, by its workspace or its run folder; `{"error": ...}` without one."""
    try:
        workspace = find_run(Path(workspace_path))
        identity = workspace.identity()
        storage = optuna.storages.JournalStorage(Journal(workspace.journal, create=False))
        study = optuna.load_study(study_name=identity.id, storage=storage)
    except (StoreError, KeyError) as error:
        return {"error": str(error)}
    trials = [view(one, identity.algorithm) for one in study.get_trials(deepcopy=False)]
    good = [one for one in trials if one.values]
    ended = [one for one in trials if one.state != "running"]
    sign = -1.0 if identity.objectives[0][1] == "maximize" else 1.0
    best = min(good, key=lambda one: sign * one.values[0], default=None)
    return {
        "experiment_id": identity.id,
        "progress": {
            "completed": len(ended),
            "succeeded": len(good),
            "failed": len(ended) - len(good),
            "pending": len(trials) - len(ended),
            "total": study.user_attrs.get(LIMIT),
            "best_metric": best.values[0] if best else None,
            "best_rec_id": best.number if best else None,
            "algorithm": identity.algorithm,
        },
        "best": _trial(best) if best else None,
        "recommendations": [_trial(one) for one in trials],
        "active_jobs": [
            {"rec_id": one.number, "job_id": one.facts["job_id"]}
            for one in trials
            if one.state == "running" and one.facts.get("job_id")
        ],
    }


def format_result(result: Mapping[str, Any]) -> str:
    """The result of a runner as text."""
    best, progress, baseline = result["best"], result["progress"], result["baseline"]
    lines = [
        f"Best: trial {best['rec_id']} with {best['metric_value']:g}"
        f" ({progress['succeeded']} of {progress['completed']} trials succeeded,"
        f" {progress['algorithm']})",
        *(f"  {path}: {value}" for path, value in sorted(best["specs"].items())),
        f"Ended: {progress['reason']}.",
    ]
    if baseline["metric_value"] is not None:
        lines.append(f"Baseline: {baseline['metric_value']:g}")
    if result["final_evaluation"]["metric_value"] is None:
        lines.append("This is the best of several trainings, so it is optimistic.")
    return "\n".join(lines)


def _trial(trial: TrialView) -> dict[str, Any]:
    return {
        "rec_id": trial.number,
        "status": trial.state,
        "specs": dict(trial.specs),
        "metric_value": trial.values[0] if trial.values else None,
        "objective_values": list(trial.values),
        "job_id": trial.facts.get("job_id"),
        "source": trial.source,
        "failure_reason": trial.failure,
    }
