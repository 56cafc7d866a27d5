"""A search that is kept on the disk: ask for a trial, say what became of it, go on later.

Everything about a trial is in the journal before `ask` returns, and its outcome before `tell`
returns. A process that is killed loses nothing but what it was about to write.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from tao_sdk.automl.journal import Journal
from tao_sdk.automl.sampling import FAILURE, SOURCE, distributions, from_optuna, sampler
from tao_sdk.automl.settings import Settings
from tao_sdk.automl.space import Space
from tao_sdk.automl.workspace import Workspace
from tao_sdk.errors import ValidationError

__all__ = ["LIMIT", "Search", "TrialView", "view"]


SPECS = "specs"
"""User attribute of a trial: the values that went into its spec."""
JOBS_IN = "jobs_in"
"""User attribute of the study: the platform and the store of its jobs."""
LIMIT = "max_trials"
"""User attribute of the study: how many trials were last asked for."""
_DIRECTIONS = {
    "minimize": optuna.study.StudyDirection.MINIMIZE,
    "maximize": optuna.study.StudyDirection.MAXIMIZE,
}


@dataclass(frozen=True)
class TrialView:
    """A trial as the journal has it."""

    number: int
    state: str
    """"running", "success" or "failure"."""
    specs: Mapping[str, Any]
    """The searched values by dotted path, as they go into the spec."""
    values: tuple[float, ...]
    """One for each objective; empty without a result."""
    source: str
    failure: str
    facts: Mapping[str, Any]
    """Whatever else was noted about it."""


class Search:
    """One search in its workspace, for one process at a time."""

    def __init__(self, workspace: Workspace, space: Space, settings: Settings) -> None:
        self.workspace = workspace
        self.space = space
        self.settings = settings
        self.identity = workspace.identity()
        storage = optuna.storages.JournalStorage(Journal(workspace.journal))
        with _quiet():
            self._study = optuna.create_study(
                study_name=self.identity.id,
                storage=storage,
                directions=[_DIRECTIONS[one.direction] for one in settings.objectives],
                load_if_exists=True,
            )
        if self._study.user_attrs.get(LIMIT, -1) != settings.max_trials:
            self._study.set_user_attr(LIMIT, settings.max_trials)

    def ask(self) -> TrialView:
        """A new trial, which runs from now on.

        It is asked for in a copy of the study in memory and then written down whole, in one line:
        Optuna itself writes a trial parameter by parameter, and a process that is killed in
        between leaves half a trial.
        """
        trials = self._study.get_trials(deepcopy=False)
        with _quiet():
            copy = optuna.create_study(directions=self._study.directions)
        copy.add_trials(trials)
        copy.sampler = sampler(
            self.settings,
            self.space,
            seed=self.identity.seed,
            number=len(trials),
        )
        copy.ask(distributions(self.space))
        asked = copy.get_trials(deepcopy=False)[-1]
        made = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=asked.params,
            distributions=asked.distributions,
            user_attrs={**asked.user_attrs, SPECS: self._specs(asked)},
            system_attrs=asked.system_attrs,
        )
        # Not `add_trial`, which does not say the number: another process may ask, too.
        storage = self._study._storage
        return self._view(storage.get_trial(storage.create_new_trial(self._study._study_id, made)))

    def require_jobs_in(self, platform: str, store: str) -> None:
        """Jobs of one search are in one store: another one would not know them, and double them."""
        here = [platform, store]
        known = self._study.user_attrs.get(JOBS_IN)
        if known is None:
            self._study.set_user_attr(JOBS_IN, here)
        elif known != here:
            raise ValidationError(
                f"the jobs of {self.workspace.folder} are on {known[0]}, in the store {known[1]}, "
                f"not on {platform} in {store}: resume it with that platform and state_file"
            )

    def tell(self, number: int, values: Sequence[float]) -> TrialView:
        """The values that a trial reached, one for each objective."""
        trial = self._require_running(number)
        wanted = len(self.settings.objectives)
        if len(values) != wanted:
            raise ValidationError(f"trial {number}: {wanted} values are needed, not {len(values)}")
        if not all(math.isfinite(value) for value in values):
            return self.fail(number, "diverged")
        self._study.tell(trial.number, [float(value) for value in values])
        return self.trial(number)

    def fail(self, number: int, reason: str) -> TrialView:
        """A trial ended without a value."""
        trial = self._require_running(number)
        self.note(number, **{FAILURE: reason})
        self._study.tell(trial.number, state=TrialState.FAIL)
        return self.trial(number)

    def note(self, number: int, **facts: Any) -> None:
        """Write facts about a trial down."""
        trial = self._frozen(number)
        for name, value in facts.items():
            self._study._storage.set_trial_user_attr(trial._trial_id, name, value)

    def trial(self, number: int) -> TrialView:
        return self._view(self._frozen(number))

    def trials(self) -> list[TrialView]:
        return [self._view(one) for one in self._study.get_trials(deepcopy=False)]

    def best(self) -> TrialView | None:
        """The best trial of the first objective; None before the first success."""
        done = [one for one in self.trials() if one.values]
        sign = -1.0 if self.settings.objectives[0].direction == "maximize" else 1.0
        return min(done, key=lambda one: sign * one.values[0], default=None)

    def pareto_front(self) -> list[TrialView]:
        """The trials that no other trial beats in every objective."""
        return [self._view(one) for one in self._study.best_trials]

    def reason_to_stop(self) -> str:
        """Why no more trials are asked for; "" while the search goes on."""
        trials = self.trials()
        ended = [one for one in trials if one.state != "running"]
        limits = self.settings
        if limits.max_trials is not None and len(trials) >= limits.max_trials:
            return f"{limits.max_trials} trials were made"
        failed = sum(one.state == "failure" for one in ended)
        if limits.max_failed is not None and failed >= limits.max_failed:
            return f"{failed} trials failed"
        best = self.best()
        if best is not None:
            sign = -1.0 if limits.objectives[0].direction == "maximize" else 1.0
            if limits.target is not None and sign * best.values[0] <= sign * limits.target:
                return f"the target {limits.target:g} was reached"
            since = sum(one.number > best.number for one in ended)
            if limits.plateau is not None and since >= limits.plateau:
                return f"no better value in {since} trials"
        return ""

    def _frozen(self, number: int) -> FrozenTrial:
        trials = self._study.get_trials(deepcopy=False)
        if not 0 <= number < len(trials):
            raise ValidationError(f"there is no trial {number}: there are {len(trials)}")
        return trials[number]

    def _require_running(self, number: int) -> FrozenTrial:
        trial = self._frozen(number)
        if trial.state.is_finished():
            raise ValidationError(f"trial {number} has ended already ({self._view(trial).state})")
        return trial

    def _specs(self, trial: FrozenTrial) -> dict[str, Any]:
        return self.space.values(from_optuna(self.space, trial.params))

    def _view(self, trial: FrozenTrial) -> TrialView:
        return view(trial, self.settings.algorithm)


def view(trial: FrozenTrial, algorithm: str) -> TrialView:
    """A trial of the journal."""
    state = "running"
    if trial.state.is_finished():
        state = "success" if trial.state == TrialState.COMPLETE else "failure"
    facts = dict(trial.user_attrs)
    return TrialView(
        number=trial.number,
        state=state,
        specs=facts.pop(SPECS),
        values=tuple(trial.values or ()) if state == "success" else (),
        source=str(facts.pop(SOURCE, algorithm)),
        failure=str(facts.pop(FAILURE, "")),
        facts=facts,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's notes on standard error about a study that was made."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
