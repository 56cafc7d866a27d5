"""Runs the trials of a search as jobs of a platform: one loop, one status call for all jobs.

The order of writing keeps jobs from being lost or doubled. A job's id is in its trial before the
job is submitted, so a controller that was killed finds its jobs again: those that the store knows
are watched, a job that was never submitted is planned anew.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tao_sdk.automl.metrics import MetricReader
from tao_sdk.automl.programmatic import Recommendation
from tao_sdk.automl.search import Search, TrialView
from tao_sdk.errors import TaoError, ValidationError
from tao_sdk.job_states import JobState

if TYPE_CHECKING:
    from tao_sdk.models import JobStatus
    from tao_sdk.platforms.backend import Plan
    from tao_sdk.platforms.sdk import PlatformSDK

__all__ = ["Callbacks", "Executor", "MetricMissingError"]

JOBS = "job_ids"
"""User attribute of a trial: its jobs, the last one being the present one."""
METRIC_MISSING = "metric missing"
_INFRASTRUCTURE = frozenset({"ERR_INFRA", "ERR_PREEMPTED", "ERR_CAPACITY"})
MAX_INFRASTRUCTURE_RETRIES = 3
MAX_EQUAL_FAILURES = 3


class MetricMissingError(ValidationError):
    """A trial ended well and its log never showed the metric."""


@dataclass(frozen=True)
class Callbacks:
    """What a caller wants to know or decide about trials."""

    metric_extractor: Callable[[str, str], float | None] | None = None
    """From the log and the metric's name to its value, instead of our reading."""
    eval_fn: Callable[[Recommendation, str], Any] | None = None
    """Called once for each trial that ended well; its answer is the result."""
    on_recommendation: Callable[[Recommendation], Any] | None = None
    on_result: Callable[[Recommendation, float | None, str], Any] | None = None


@dataclass
class Executor:
    """One controller of one search."""

    sdk: PlatformSDK
    search: Search
    plan: Callable[[TrialView], Plan]
    """What to run for a trial."""
    callbacks: Callbacks = field(default_factory=Callbacks)
    poll_interval: float = 30.0
    paused: str = ""
    """Why no more trials are started, although the search could go on."""

    def run(self) -> None:
        """Run trials until the search ends. Ctrl-C leaves the jobs running."""
        delay = 0.1
        while True:
            self._start_trials()
            running = self._running()
            if not running:
                return
            statuses = self.sdk.get_statuses([self._job(trial) for trial in running])
            ended = [one for one in running if statuses[self._job(one)].terminal]
            for trial in ended:
                self._conclude(trial, statuses[self._job(trial)])
            delay = 0.1 if ended else min(delay * 1.5, self.poll_interval)
            if not ended:
                time.sleep(delay)

    def cancel(self) -> None:
        """Cancel the jobs of all running trials."""
        for trial in self._running():
            self.sdk.cancel_job(self._job(trial))

    def _start_trials(self) -> None:
        waiting = [one for one in self._running() if not self._is_submitted(one)]
        for trial in waiting:
            self._submit(trial)
        while not self.paused and not self.search.reason_to_stop():
            if len(self._running()) >= self.search.settings.max_concurrent:
                return
            trial = self.search.ask()
            if self.callbacks.on_recommendation:
                self.callbacks.on_recommendation(self._recommendation(trial))
            self._submit(trial)

    def _submit(self, trial: TrialView) -> None:
        plan = self.plan(trial)
        jobs = [*trial.facts.get(JOBS, []), plan.job_id]
        self.search.note(trial.number, **{JOBS: jobs, "job_id": plan.job_id})
        try:
            self.sdk.submit(plan)
        except TaoError as error:
            if self.sdk.get_job(plan.job_id) is None:
                # Nothing runs. The trial stays open, so that a resumed search submits it again.
                self.search.note(trial.number, **{JOBS: jobs[:-1], "job_id": None})
                raise
            self.search.note(trial.number, submission=str(error))

    def _conclude(self, trial: TrialView, status: JobStatus) -> None:
        """Write down how a trial ended, or try again what was no fault of its own."""
        job_id = self._job(trial)
        if status.status == JobState.COMPLETE.value:
            value = self._measure(trial, job_id)
            ended = (
                self.search.fail(trial.number, METRIC_MISSING)
                if value is None
                else self.search.tell(trial.number, value)
            )
            self._require_metric(ended, job_id)
        else:
            cause = self._cause(job_id, status)
            attempts = len(trial.facts.get(JOBS, []))
            if cause in _INFRASTRUCTURE and attempts <= MAX_INFRASTRUCTURE_RETRIES:
                self._submit(trial)
                return
            ended = self.search.fail(trial.number, cause)
            self._pause_after_equal_failures()
        if self.callbacks.on_result:
            found = self._recommendation(ended)
            self.callbacks.on_result(found, found.result, found.status)

    def _measure(self, trial: TrialView, job_id: str) -> list[float] | None:
        """The values of a trial that ended well; None where one is missing."""
        names = [one.metric for one in self.search.settings.objectives]
        if self.callbacks.eval_fn:
            answer = self.callbacks.eval_fn(self._recommendation(trial), job_id)
            if isinstance(answer, Mapping):
                values = [answer.get(name) for name in names]
            else:
                values = [answer]
        elif self.callbacks.metric_extractor:
            log = self.sdk.get_job_logs(job_id) or ""
            values = [self.callbacks.metric_extractor(log, name) for name in names]
        else:
            printed = self._printed(job_id).values
            values = [printed.get(name) for name in names]
        known = [float(value) for value in values if value is not None]
        return known if len(known) == len(names) else None

    def _printed(self, job_id: str) -> MetricReader:
        """What the whole log says of our metrics."""
        reader = MetricReader(one.metric for one in self.search.settings.objectives)
        with contextlib.closing(self.sdk.stream_logs(job_id, follow=False)) as lines:
            for line in lines:
                reader.feed(str(line))
        return reader

    def _require_metric(self, trial: TrialView, job_id: str) -> None:
        """A metric that the first trial does not print will not appear in the others."""
        if trial.failure != METRIC_MISSING or trial.number != 0:
            return
        wanted = ", ".join(one.metric for one in self.search.settings.objectives)
        seen = ", ".join(self._printed(job_id).names) or "none"
        raise MetricMissingError(
            f"the first trial ended without the metric {wanted}; its log has these: {seen}. Set "
            "automl_settings metric to one of them, or give metric_extractor or eval_fn"
        )

    def _cause(self, job_id: str, status: JobStatus) -> str:
        if status.status == JobState.CANCELED.value:
            return "canceled"
        reason = self.sdk.get_failure_analysis(job_id) or {}
        return str(reason.get("err_class") or "ERR_UNKNOWN")

    def _pause_after_equal_failures(self) -> None:
        ended = [one for one in self.search.trials() if one.state != "running"]
        last = ended[-MAX_EQUAL_FAILURES:]
        causes = Counter(one.failure for one in last if one.state == "failure")
        if len(last) == MAX_EQUAL_FAILURES and set(causes.values()) == {MAX_EQUAL_FAILURES}:
            [cause] = causes
            self.paused = f"the last {MAX_EQUAL_FAILURES} trials failed alike: {cause}"

    def _running(self) -> list[TrialView]:
        return [one for one in self.search.trials() if one.state == "running"]

    def _job(self, trial: TrialView) -> str:
        return str(trial.facts.get("job_id") or "")

    def _is_submitted(self, trial: TrialView) -> bool:
        job_id = self._job(trial)
        return bool(job_id) and self.sdk.get_job(job_id) is not None

    def _recommendation(self, trial: TrialView) -> Recommendation:
        return Recommendation(trial, self.search.settings.metric)
