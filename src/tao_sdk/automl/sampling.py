"""Optuna's view of a search: distributions for the axes, and a sampler for each algorithm.

A sampler is made anew for each trial, seeded by the search and the trial's number. Nothing of it is
kept between trials, so a search that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from tao_sdk.automl.axes import Axes
from tao_sdk.automl.dimensions import Choice, Dimension, Real
from tao_sdk.automl.proposals import Outcome, propose
from tao_sdk.automl.settings import Settings
from tao_sdk.automl.space import Space

__all__ = ["FAILURE", "SOURCE", "distributions", "from_optuna", "sampler", "to_optuna"]

FAILURE = "failure"
"""User attribute of a failed trial: "infrastructure", or what is wrong with its values."""
INFRASTRUCTURE = "infrastructure"
SOURCE = "source"
"""User attribute of a trial: where its point comes from."""
MODEL_TRIALS = 200
"""From here on the model of `auto` costs more than it gains; TPE takes over."""
_PLAIN = (type(None), bool, int, float, str)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The axes, as Optuna has them."""
    return {name: _distribution(axis) for name, axis in space.dimensions.items()}


def to_optuna(point: Mapping[str, Any]) -> dict[str, Any]:
    """A point with options as Optuna keeps them."""
    return {name: _label(value) for name, value in point.items()}


def from_optuna(space: Space, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The point of a trial of Optuna."""
    point = {}
    for name, axis in space.dimensions.items():
        value = parameters[name]
        if isinstance(axis, Choice) and not axis.holds(value):
            value = next(option for option in axis.options if _label(option) == value)
        point[name] = value
    return point


def sampler(settings: Settings, space: Space, *, seed: int, number: int) -> BaseSampler:
    """The sampler that proposes trial `number`."""
    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    algorithm = settings.algorithm
    if algorithm == "auto" and (number >= MODEL_TRIALS or len(settings.objectives) > 1):
        algorithm = "tpe"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if algorithm == "random":
            return optuna.samplers.RandomSampler(seed=own)
        if algorithm == "cmaes":
            return optuna.samplers.CmaEsSampler(seed=own, warn_independent_sampling=False)
        if algorithm == "nsga2":
            return optuna.samplers.NSGAIISampler(seed=own)
        if algorithm == "tpe":
            return optuna.samplers.TPESampler(seed=own, multivariate=True, constant_liar=True)
    return AutoSampler(space, seed=seed, budget=settings.max_trials)


class AutoSampler(BaseSampler):
    """The `auto` search as an ordinary sampler of Optuna, for one objective."""

    def __init__(self, space: Space, *, seed: int, budget: int | None = None) -> None:
        self._space = space
        self._axes = Axes(space.dimensions)
        self._seed = seed
        self._budget = budget

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return distributions(self._space)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        trials = study.get_trials(deepcopy=False)
        earlier = [one for one in trials if one.number != trial.number]
        maximise = study.direction == optuna.study.StudyDirection.MAXIMIZE
        default = self._space.default_point()
        proposal = propose(
            self._axes,
            self._axes.row(default),
            self._history(earlier, -1.0 if maximise else 1.0),
            seed=self._seed,
            number=trial.number,
            budget=self._budget,
        )
        study._storage.set_trial_user_attr(trial._trial_id, SOURCE, proposal.source)
        is_default = proposal.source == "default"
        return to_optuna(default if is_default else self._axes.point(proposal.row))

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        raise ValueError(f"{param_name} is not in the search space")

    def _history(self, trials: Sequence[FrozenTrial], sign: float) -> list[Outcome]:
        history = []
        for trial in trials:
            if not trial.params.keys() >= self._space.dimensions.keys():
                continue
            row = self._axes.row(from_optuna(self._space, trial.params))
            value = _value(trial)
            if value is not None:
                history.append(Outcome(row, sign * value))
            elif not trial.state.is_finished():
                history.append(Outcome(row))
            elif trial.user_attrs.get(FAILURE) != INFRASTRUCTURE:
                history.append(Outcome(row, failed=True))
        return history


def _value(trial: FrozenTrial) -> float | None:
    """What a trial reached; of one that was stopped early, what it had reached by then."""
    value: float | None = None
    if trial.state == TrialState.COMPLETE:
        value = trial.values[0] if trial.values else None
    elif trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = trial.intermediate_values[max(trial.intermediate_values)]
    return value if value is not None and math.isfinite(value) else None


def _distribution(axis: Dimension) -> BaseDistribution:
    if isinstance(axis, Choice):
        return CategoricalDistribution([_label(option) for option in axis.options])
    if isinstance(axis, Real):
        return FloatDistribution(axis.low, axis.high, log=axis.log)
    return IntDistribution(axis.low, axis.high, log=axis.log, step=axis.step)


def _label(value: Any) -> Any:
    """An option as Optuna can keep it: lists and sections as JSON."""
    return value if isinstance(value, _PLAIN) else json.dumps(value)
