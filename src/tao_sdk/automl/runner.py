"""`AutoMLRunner`: tunes a model of a skill bank with jobs of a platform."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk.automl.executor import Callbacks, Executor
from tao_sdk.automl.programmatic import Recommendation
from tao_sdk.automl.search import Search, TrialView
from tao_sdk.automl.settings import parse_settings
from tao_sdk.automl.space import build_space
from tao_sdk.automl.workspace import Workspace, find_run
from tao_sdk.errors import StoreError, TaoError, ValidationError
from tao_sdk.script_runner import build_entrypoint
from tao_sdk.skills import SkillBank, action
from tao_sdk.skills.actions import SkillAction
from tao_sdk.skills.spec_values import put

if TYPE_CHECKING:
    from tao_sdk.platforms.backend import Plan
    from tao_sdk.platforms.sdk import PlatformSDK

__all__ = ["AutoMLRunner", "NoTrialSucceededError"]

DEFAULT_SETTINGS: Mapping[str, Any] = {"algorithm": "bayesian", "metric": "loss"}
_LEASE_SECONDS = 7 * 24 * 3600.0


class NoTrialSucceededError(TaoError, RuntimeError):
    """A search ended without a single result."""


class AutoMLRunner:
    """Tunes one action of one model on one platform."""

    def __init__(
        self,
        sdk: PlatformSDK,
        skill_dir: str | Path,
        action: str = "train",
        poll_interval: float = 30,
    ) -> None:
        self.sdk = sdk
        self.skill_dir = Path(skill_dir)
        self.action = action
        self.poll_interval = poll_interval
        # A model's folder lies below the bank's folder of models.
        self._bank = SkillBank(self.skill_dir.parent.parent)

    def run(
        self,
        *,
        automl_settings: Mapping[str, Any] | None = None,
        automl_hyperparameters: list[str] | None = None,
        custom_param_ranges: Mapping[str, Mapping[str, Any]] | None = None,
        spec_overrides: Mapping[str, Any] | None = None,
        train_dataset_uri: str = "",
        eval_dataset_uri: str = "",
        image: str | None = None,
        workspace_path: str | Path = "./automl_workspace",
        resume: bool = False,
        metric_extractor: Callable[[str, str], float | None] | None = None,
        eval_fn: Callable[[Recommendation, str], Any] | None = None,
        baseline_fn: Callable[[Mapping[str, Any]], float | None] | None = None,
        final_eval_fn: Callable[[Recommendation, str | None], Any] | None = None,
        on_recommendation: Callable[[Recommendation], Any] | None = None,
        on_result: Callable[[Recommendation, float | None, str], Any] | None = None,
        **platform_kwargs: Any,
    ) -> dict[str, Any]:
        """Search until a limit of the settings is reached; returns the result.

        `platform_kwargs` go to `create_job`. Everything that can be wrong is found before the first
        job exists. Ctrl-C leaves the jobs running; `resume=True` goes on, with the workspace or the
        run folder as `workspace_path`.
        """
        settings = parse_settings(automl_settings or DEFAULT_SETTINGS)
        base = self._base_action(
            spec_overrides or {}, train_dataset_uri, eval_dataset_uri, image, platform_kwargs
        )
        schema = self._bank.get_schema(self.skill_dir.name, self.action)
        if schema is None:
            raise ValidationError(
                f"{self.skill_dir} has no schema of {self.action}: nothing to tune"
            )
        space = build_space(
            schema,
            base.specs,
            action=self.action,
            names=automl_hyperparameters,
            custom_ranges=custom_param_ranges,
        )

        def plan(values: Mapping[str, Any]) -> Plan:
            return self._plan(base, values, platform_kwargs)

        plan(space.values(space.default_point()))  # refuses what cannot be submitted
        about: dict[str, Any] = {
            "network": base.network_arch,
            "action": self.action,
            "settings": settings,
            "space": space,
        }
        workspace = _workspace(Path(workspace_path), resume, about)
        baseline = _baseline(baseline_fn, base.specs)
        search = Search(workspace, space, settings)
        executor = Executor(
            self.sdk,
            search,
            plan=lambda trial: plan(trial.specs),
            callbacks=Callbacks(metric_extractor, eval_fn, on_recommendation, on_result),
            poll_interval=self.poll_interval,
        )
        with workspace.controlled() as alone, contextlib.ExitStack() as stack:
            if not alone:  # no file locks there: the store has to do
                name = f"automl {search.identity.id}"
                if not stack.enter_context(self.sdk.store.lease(name, _LEASE_SECONDS)):
                    owner = self.sdk.store.lease_owner(name)
                    raise StoreError(f"{workspace.folder} is being tuned already, by {owner}")
            search.require_jobs_in(self.sdk.platform, str(self.sdk.store.path))
            executor.run()
        return _result(search, executor.paused, baseline, final_eval_fn)

    def _base_action(
        self,
        overrides: Mapping[str, Any],
        train_uri: str,
        eval_uri: str,
        image: str | None,
        keywords: Mapping[str, Any],
    ) -> SkillAction:
        roots = {"train_datasets": train_uri, "eval_dataset": eval_uri}
        found = action(
            self.skill_dir.name,
            self.action,
            bank=self._bank,
            overrides=overrides,
            image=image,
            dataset_roots={name: root for name, root in roots.items() if root},
            gpu_count=keywords.get("gpu_count"),
            num_nodes=keywords.get("num_nodes"),
        )
        if found.mode != "config":
            raise ValidationError(
                f"{found.model} {self.action} has no spec (mode {found.mode}): nothing to tune"
            )
        if found.missing:
            raise ValidationError(f"spec_overrides: still missing: {', '.join(found.missing)}")
        return found

    def _plan(
        self, base: SkillAction, values: Mapping[str, Any], keywords: Mapping[str, Any]
    ) -> Plan:
        specs = copy.deepcopy(base.specs)
        for path, value in values.items():
            put(specs, path, value)
        arguments = {**base.entrypoint_arguments(), "specs": specs}
        return self.sdk.plan(
            image=base.image,
            command=build_entrypoint(**arguments)["command"],
            **{"network_arch": base.network_arch, "action": self.action, **keywords},
        )


def _workspace(path: Path, resume: bool, about: Mapping[str, Any]) -> Workspace:
    if not resume:
        return Workspace.create(path, **about)
    workspace = find_run(path)
    workspace.require_same(**about)
    return workspace


def _result(
    search: Search,
    paused: str,
    baseline: Mapping[str, Any],
    final_eval_fn: Callable[[Recommendation, str | None], Any] | None,
) -> dict[str, Any]:
    metric, direction = search.identity.objectives[0]
    best = search.best()
    trials = search.trials()
    reason = paused or search.reason_to_stop()
    if best is None:
        causes = ", ".join(f"{one.number}: {one.failure}" for one in trials)
        raise NoTrialSucceededError(f"no trial succeeded ({reason}). {causes}")
    found = Recommendation(best, metric)
    final = _final_evaluation(found, baseline, direction, final_eval_fn)
    comparison = _comparison(baseline.get("metric_value"), best.values[0], direction)
    result = {
        "workspace": str(search.workspace.folder),
        "best": {**_entry(best), "metric_value": best.values[0], "specs": dict(best.specs)},
        "progress": {
            "completed": len(trials),
            "succeeded": sum(one.state == "success" for one in trials),
            "failed": sum(one.state == "failure" for one in trials),
            "total": search.settings.max_trials,
            "best_metric": best.values[0],
            "best_rec_id": best.number,
            "algorithm": search.settings.algorithm,
            "reason": reason,
        },
        "baseline": {**baseline, "metric_name": metric, "comparison_to_best": comparison},
        "final_evaluation": {**final, "metric_name": metric},
        "history": [_entry(one) for one in trials],
    }
    if len(search.settings.objectives) > 1:
        result["pareto_front"] = [_entry(one) for one in search.pareto_front()]
    return result


def _entry(trial: TrialView) -> dict[str, Any]:
    return {
        "rec_id": trial.number,
        "job_id": trial.facts.get("job_id"),
        "metric": trial.values[0] if trial.values else None,
        "objective_values": list(trial.values),
        "status": trial.state,
        "failure_reason": trial.failure,
        "source": trial.source,
        "feedback": trial.facts.get("feedback"),
    }


def _baseline(
    measure: Callable[[Mapping[str, Any]], float | None] | None, specs: Mapping[str, Any]
) -> dict[str, Any]:
    if measure is None:
        return {"enabled": False, "status": "not_run", "metric_value": None}
    value = measure(copy.deepcopy(dict(specs)))
    status = "measured" if value is not None else "metric_missing"
    return {"enabled": True, "status": status, "metric_value": value}


def _final_evaluation(
    best: Recommendation,
    baseline: Mapping[str, Any],
    direction: str,
    measure: Callable[[Recommendation, str | None], Any] | None,
) -> dict[str, Any]:
    if measure is None:
        return {"enabled": False, "status": "not_run", "metric_value": None}
    answer = measure(best, best.job_id)
    value = answer.get(best.metric) if isinstance(answer, Mapping) else answer
    return {
        "enabled": True,
        "status": "measured" if value is not None else "metric_missing",
        "metric_value": value,
        "comparison_to_baseline": _comparison(baseline.get("metric_value"), value, direction),
    }


def _comparison(before: Any, after: Any, direction: str) -> dict[str, Any] | None:
    """How much better a value is than the one before; positive is better."""
    if before is None or after is None:
        return None
    delta = before - after if direction == "minimize" else after - before
    return {"delta": delta, "improved": delta > 0, "direction": direction}
