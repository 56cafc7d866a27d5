"""Where to look next: the point with the largest expected improvement."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr

from tao_sdk.automl.gaussian_process import Array, GaussianProcess

__all__ = ["best_point", "log_expected_improvement"]

_CLIMBS = 4
"""How many of the best candidates are improved by following the gradient."""


def log_expected_improvement(mean: Array, variance: Array, best: float) -> Array:
    """The logarithm of the expected improvement over `best`, of values to be minimised.

    By logarithms, because far from the best point the improvement itself is 0 in floating point,
    and then shows no direction.
    """
    deviation = np.sqrt(variance)
    improvement: Array = np.log(deviation) + _log_h((best - mean) / deviation)
    return improvement


def _log_h(z: Array) -> Array:
    """log(phi(z) + z Phi(z)), stable for very negative z."""
    near = z > -5
    safe = np.where(near, z, 0.0)
    direct = np.log(np.exp(-0.5 * safe**2) / math.sqrt(2 * math.pi) + safe * ndtr(safe))
    far = np.where(near, -6.0, z)
    # phi(z) (1 - |z| Phi(z)/phi(z)), and 1 - |z| R(z) is about 1/z² for the Mills ratio R.
    mills = np.exp(log_ndtr(far) + 0.5 * far**2) * math.sqrt(2 * math.pi)
    tail = (
        -0.5 * far**2
        - 0.5 * math.log(2 * math.pi)
        + np.log(np.maximum(1 + far * mills, 0.5 / far**2))
    )
    result: Array = np.where(near, direct, tail)
    return result


def best_point(
    model: GaussianProcess,
    best: float,
    candidates: Array,
    rounded: Callable[[Array], Array],
) -> Array:
    """The most promising point: the best of the candidates and of climbs from them.

    `rounded` moves points to positions that stand for values, such as those of whole numbers.
    """
    candidates = rounded(candidates)
    promise = _promise(model, candidates, best)
    order = np.argsort(-promise)[:_CLIMBS]
    climbed = [_climb(model, best, candidates[index]) for index in order]
    finals = rounded(np.vstack([candidates[order], *climbed]))
    final_promise = _promise(model, finals, best)
    # A point that has been tried teaches nothing where values repeat.
    tried = (finals[:, None, :] == model.points[None, :, :]).all(axis=2).any(axis=1)
    if not tried.all():
        final_promise[tried] = -np.inf
    chosen: Array = finals[int(np.argmax(final_promise))]
    return chosen


def _promise(model: GaussianProcess, points: Array, best: float) -> Array:
    """Expected improvement, less where a measurement would mostly measure noise again."""
    mean, variance = model.predict(points)
    fresh: Array = np.log1p(-np.sqrt(model.noise / (model.noise + variance)))
    return log_expected_improvement(mean, variance, best) + fresh


def _climb(model: GaussianProcess, best: float, start: Array) -> Array:
    """Follow the gradient of the numbers; choices stay."""
    moves: NDArray[np.bool_] = ~model.is_choice
    if not moves.any():
        return start

    def loss(numbers: Array) -> tuple[float, Array]:
        point = start.copy()
        point[moves] = numbers
        mean, variance, mean_slope, variance_slope = model.slopes(point)
        deviation = math.sqrt(variance)
        z = (best - mean) / deviation
        value = math.log(deviation) + float(_log_h(np.array([z]))[0])
        # d log h(z) / dz = Phi(z) / h(z)
        ratio = math.exp(float(log_ndtr(z)) - float(_log_h(np.array([z]))[0]))
        by_deviation = (1 - ratio * z) / deviation
        slope = -ratio / deviation * mean_slope + by_deviation * variance_slope / (2 * deviation)
        return -value, -slope[moves]

    bounds = [(0.0, 1.0)] * int(moves.sum())
    found = minimize(
        loss, start[moves], jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 30}
    )
    end: Array = start.copy()
    end[moves] = np.clip(found.x, 0.0, 1.0)
    return end
