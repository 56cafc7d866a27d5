"""The next point of the `auto` search, from what is known so far.

Pure: the same history, seed and number give the same point, in any process. First comes the
default, then points near it in turn with points spread evenly, then those that a Gaussian process
finds most promising.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

from tao_sdk.automl.acquisition import best_point
from tao_sdk.automl.axes import Axes
from tao_sdk.automl.gaussian_process import Array, fit

__all__ = ["Outcome", "Proposal", "propose", "startup_count", "warped"]

_NEAR_WIDTH = 0.15
_CANDIDATES = 400
"""Spread evenly; as many again lie near the best points."""
_LEADERS = 4


class Outcome(NamedTuple):
    """What became of one trial. Values are to be minimised."""

    row: Array
    value: float | None = None
    """None while it runs, and of a trial that failed."""
    failed: bool = False
    """Diverged, out of memory or otherwise without a value: worse than all others."""


class Proposal(NamedTuple):
    row: Array
    source: str
    """"default", "near", "sobol" or "gp"."""


def startup_count(axes: int, budget: int | None) -> int:
    """How many trials come before the model has a say."""
    wanted = max(4, min(10, 3 + axes // 2))
    return min(wanted, max(2, budget // 3)) if budget else wanted


def propose(
    axes: Axes,
    default: Array,
    history: Sequence[Outcome],
    *,
    seed: int,
    number: int,
    budget: int | None = None,
) -> Proposal:
    """The point of trial `number`."""
    if number == 0:
        return Proposal(default, "default")
    random = np.random.default_rng([seed, number])
    known = [one for one in history if one.failed or one.value is not None]
    startup = startup_count(len(axes.names), budget)
    if number < startup or sum(not one.failed for one in known) < 2:
        return _startup(axes, default, seed, number, random)
    running = [one.row for one in history if not one.failed and one.value is None]
    # The matrices are small: threads would only wait for each other on a busy machine.
    with threadpool_limits(1, user_api="blas"):
        return Proposal(_by_model(axes, known, running, random), "gp")


def warped(outcomes: Sequence[Outcome]) -> Array:
    """Values of about size 1 for a model.

    The better half keeps its shape. The worse half is replaced by its ranks: how bad a bad trial
    was says nothing about where the best one is, and one diverged loss would flatten all others.
    Failed trials share the worst rank.
    """
    values = np.array([math.inf if one.value is None else one.value for one in outcomes])
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values))
    failed = ~np.isfinite(values)
    if failed.any():
        ranks[failed] = len(values) - 1
    quantiles = ndtri((ranks + 0.5) / len(values))
    finite = values[~failed]
    least, median, upper = np.quantile(finite, (0.0, 0.5, 0.75))
    # Later trials crowd near the best: the median alone would make much of their differences.
    turn = max(median, (least + upper) / 2)
    if turn <= least:
        return np.asarray(quantiles - quantiles.mean())
    # The best value stands where its rank would put it, the turn at 0.
    reach = max(-float(quantiles.min()), 1.0)
    better = values <= turn
    shaped = (np.where(better, values, turn) - turn) / (turn - least) * reach
    result: Array = np.where(better, shaped, np.maximum(quantiles - ndtri(better.mean()), 0.0))
    return result


def _startup(
    axes: Axes, default: Array, seed: int, number: int, random: np.random.Generator
) -> Proposal:
    if number % 2:
        row = axes.near(default, 1, _NEAR_WIDTH, 0.5, random)
        return Proposal(axes.rounded(row)[0], "near")
    from scipy.stats import qmc  # half a second to import, needed for a few trials only

    sequence = qmc.Sobol(len(axes.names), scramble=True, rng=np.random.default_rng(seed))
    sequence.fast_forward(number // 2)
    row = sequence.random(1)
    return Proposal(axes.rounded(axes.spread(row))[0], "sobol")


def _by_model(
    axes: Axes, known: Sequence[Outcome], running: Sequence[Array], random: np.random.Generator
) -> Array:
    rows = np.vstack([one.row for one in known])
    values = warped(known)
    model = fit(rows, values, axes.is_choice)
    model = model.believing(np.array(running)) if running else model
    best = float(model.predict(rows)[0].min())
    leaders = rows[np.argsort(values, kind="stable")[:_LEADERS]]
    share = min(1.0, 3.0 / len(axes.names))
    candidates = [axes.spread(random.random((_CANDIDATES, len(axes.names))))]
    for width in (0.02, 0.2):
        candidates += [
            axes.near(leader, _CANDIDATES // (2 * _LEADERS), width, share, random)
            for leader in leaders
        ]
    return best_point(model, best, np.vstack(candidates), axes.rounded)
