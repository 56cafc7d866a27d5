"""`AutoML`: a search that a program drives itself, by asking and reporting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tao_sdk.automl.search import Search, TrialView
from tao_sdk.automl.settings import Settings, parse_settings
from tao_sdk.automl.space import Space, build_space
from tao_sdk.automl.workspace import Workspace, find_run
from tao_sdk.errors import ValidationError

__all__ = ["AutoML", "Recommendation"]

_RESULTS = ("success", "failure")


class Recommendation(Mapping[str, Any]):
    """One trial: the values to put into the spec, by dotted path, and what became of it."""

    def __init__(self, trial: TrialView, metric: str) -> None:
        self.id = trial.number
        self.specs = dict(trial.specs)
        self.status = trial.state
        self.source = trial.source
        self.metric = metric
        self.result = trial.values[0] if trial.values else None
        self.objective_values = list(trial.values)
        self.failure_reason = trial.failure
        self.job_id = trial.facts.get("job_id")
        self.best_epoch_number = trial.facts.get("best_epoch")
        self.feedback = trial.facts.get("feedback")

    def __getitem__(self, path: str) -> Any:
        return self.specs[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def __repr__(self) -> str:
        return f"Recommendation(id={self.id}, status={self.status!r}, specs={self.specs!r})"


class AutoML:
    """A search over the specs of one model.

    Everything is kept in `workspace`. With `resume=True` the newest run there, or the run folder
    that is given, goes on: its trials are known, its seed is the same, and trials that were running
    can still be reported.
    """

    def __init__(
        self,
        workspace: str | Path,
        network: str,
        train_specs: Mapping[str, Any],
        settings: Mapping[str, Any],
        automl_hyperparameters: list[str] | None = None,
        custom_param_ranges: Mapping[str, Mapping[str, Any]] | None = None,
        action: str = "train",
        resume: bool = False,
        *,
        search_schema: Mapping[str, Any],
    ) -> None:
        self.settings: Settings = parse_settings(settings)
        self.space: Space = build_space(
            search_schema,
            train_specs,
            action=action,
            names=automl_hyperparameters,
            custom_ranges=custom_param_ranges,
        )
        base = Path(workspace)
        about: dict[str, Any] = {
            "network": network,
            "action": action,
            "settings": self.settings,
            "space": self.space,
        }
        if resume:
            run = find_run(base)
            run.require_same(**about)
        else:
            run = Workspace.create(base, **about)
        self._search = Search(run, self.space, self.settings)
        self._finished = ""

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._search.workspace.folder

    def next_recommendation(self) -> list[Recommendation]:
        """New trials, as many as may run at once; empty while all slots are taken, and at the
        end."""
        made: list[Recommendation] = []
        running = sum(one.state == "running" for one in self._search.trials())
        while running + len(made) < self.settings.max_concurrent and not self._reason_to_stop():
            made.append(self._recommendation(self._search.ask()))
        return made

    def report_result(
        self,
        rec_id: int,
        value: float | Mapping[str, float] | None = None,
        best_epoch: int | None = None,
        status: str = "success",
        feedback: Any = None,
    ) -> Recommendation:
        """What became of a trial. With several objectives, `value` has one entry for each metric.

        Values that are no finite numbers count as a failure, never as a number.
        """
        if status not in _RESULTS:
            raise ValidationError(f"status must be success or failure, not {status!r}")
        values = self._values(value) if status == "success" else []
        facts = {"best_epoch": best_epoch, "feedback": feedback}
        self._search.note(rec_id, **{key: item for key, item in facts.items() if item is not None})
        if status == "failure":
            return self._recommendation(self._search.fail(rec_id, "reported as failed"))
        return self._recommendation(self._search.tell(rec_id, values))

    def get_best(self) -> Recommendation | None:
        """The best trial so far; None before the first success."""
        best = self._search.best()
        return None if best is None else self._recommendation(best)

    def get_pareto_front(self) -> list[Recommendation]:
        """The trials that no other trial beats in every objective."""
        return [self._recommendation(one) for one in self._search.pareto_front()]

    def get_history(self) -> list[Recommendation]:
        """All trials, in the order in which they were made."""
        return [self._recommendation(one) for one in self._search.trials()]

    def get_progress(self) -> dict[str, Any]:
        """How far the search is."""
        trials = self._search.trials()
        best = self._search.best()
        states = [one.state for one in trials]
        return {
            "completed": len(states) - states.count("running"),
            "succeeded": states.count("success"),
            "failed": states.count("failure"),
            "pending": states.count("running"),
            "total": self.settings.max_trials,
            "best_metric": best.values[0] if best else None,
            "best_rec_id": best.number if best else None,
            "algorithm": self.settings.algorithm,
        }

    def get_status(self) -> dict[str, Any]:
        """Progress, and why the search has ended if it has."""
        return {
            **self.get_progress(),
            "experiment_id": self._search.identity.id,
            "complete": self.is_complete(),
            "reason": self._reason_to_stop(),
        }

    def is_complete(self) -> bool:
        """Whether no more trials come and none is running."""
        if not self._reason_to_stop():
            return False
        return all(one.state != "running" for one in self._search.trials())

    def finish(self) -> None:
        """Make no more trials in this process; a resumed search goes on."""
        self._finished = "finish() was called"

    def _reason_to_stop(self) -> str:
        return self._finished or self._search.reason_to_stop()

    def _values(self, value: Any) -> list[float]:
        names = [one.metric for one in self.settings.objectives]
        if isinstance(value, Mapping):
            if missing := [name for name in names if name not in value]:
                raise ValidationError(
                    f"report_result: no value for {', '.join(missing)}; there are "
                    f"{', '.join(map(str, value)) or 'none'}"
                )
            return [_float(value[name]) for name in names]
        if len(names) > 1:
            raise ValidationError(f"report_result: value must have {', '.join(names)} by name")
        return [_float(value)]

    def _recommendation(self, trial: TrialView) -> Recommendation:
        return Recommendation(trial, self.settings.metric)


def _float(value: Any) -> float:
    """A number; what is none becomes NaN, which counts as diverged."""
    if isinstance(value, bool) or value is None:
        raise ValidationError(f"report_result: value must be a number, not {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValidationError(f"report_result: value must be a number, not {value!r}") from None
    except OverflowError:
        return math.nan
