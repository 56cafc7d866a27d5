"""A Gaussian process over the unit cube: a Matérn 5/2 kernel with one weight for each axis.

Axes of choices count as different or not; numbers by their distance. Kernel and noise are found by
the most probable values of their parameters. NumPy and SciPy only: a tuner must not need a deep
learning framework of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

__all__ = ["GaussianProcess", "fit"]

Array = NDArray[np.float64]

_SQRT5 = math.sqrt(5.0)
_JITTER = 1e-8
_NOISE_BOUNDS = (1e-6, 1.0)
_WEIGHT_BOUNDS = (1e-4, 1e4)
_SCALE_BOUNDS = (0.05, 20.0)
# The prior of a length scale widens with the number of axes, so that many axes do not make every
# point look far from all others.
_LENGTH_MEDIAN = 0.5
_LENGTH_SPREAD = 1.2
_NOISE_MEDIAN = 1e-2
_NOISE_SPREAD = 1.5


@dataclass(frozen=True)
class GaussianProcess:
    """What is believed about a function after some of its values are known."""

    points: Array
    is_choice: NDArray[np.bool_]
    weights: Array
    """One for each axis: the inverse square of its length scale."""
    scale: float
    noise: float
    factor: Array
    """Cholesky factor of the covariance of the known values."""
    values: Array
    coefficients: Array

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance at points, one in each row."""
        across = self.scale * _matern(self._distances(points, self.points))
        mean = across @ self.coefficients
        solved = solve_triangular(self.factor, across.T, lower=True, check_finite=False)
        variance = self.scale - np.einsum("ij,ij->j", solved, solved)
        return mean, np.maximum(variance, 1e-12)

    def slopes(self, point: Array) -> tuple[float, float, Array, Array]:
        """Mean, variance and their gradients at one point; the gradient along choices is 0."""
        apart = point[None, :] - self.points
        squares = np.where(self.is_choice, apart != 0, apart**2) @ self.weights
        across = self.scale * _matern(squares)
        inner = 2 * apart * np.where(self.is_choice, 0.0, self.weights)
        gradient = self.scale * _matern_slope(squares)[:, None] * inner
        solved = cho_solve((self.factor, True), across, check_finite=False)
        variance = max(self.scale - float(across @ solved), 1e-12)
        mean = float(across @ self.coefficients)
        return mean, variance, gradient.T @ self.coefficients, -2 * gradient.T @ solved

    def believing(self, points: Array) -> GaussianProcess:
        """This process, as if the values at these points were known to be their means.

        Stands for trials that are running: the next one then goes elsewhere.
        """
        if not len(points):
            return self
        mean, _ = self.predict(points)
        return _conditioned(
            np.vstack([self.points, points]),
            np.concatenate([self.values, mean]),
            self.is_choice,
            self.weights,
            self.scale,
            self.noise,
        )

    def _distances(self, left: Array, right: Array) -> Array:
        return np.tensordot(_differences(left, right, self.is_choice), self.weights, axes=(2, 0))


def fit(points: Array, values: Array, is_choice: NDArray[np.bool_]) -> GaussianProcess:
    """The most probable process for these values, which should be about 1 in size."""
    axes = points.shape[1]
    apart = _differences(points, points, is_choice)
    log_median = -2 * (math.log(_LENGTH_MEDIAN) + 0.5 * math.log(max(axes, 1)))

    def loss(parameters: Array) -> tuple[float, Array]:
        return _negative_log_posterior(parameters, apart, values, log_median)

    bounds = [
        *[tuple(map(math.log, _WEIGHT_BOUNDS))] * axes,
        tuple(map(math.log, _SCALE_BOUNDS)),
        tuple(map(math.log, _NOISE_BOUNDS)),
    ]
    best: Any = None
    for shift in (0.0, 2.0):
        start = np.array([log_median + shift] * axes + [0.0, math.log(_NOISE_MEDIAN)])
        start = np.clip(start, [low for low, _ in bounds], [high for _, high in bounds])
        found = minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40}
        )
        if best is None or found.fun < best.fun:
            best = found
    weights = np.exp(best.x[:-2])
    return _conditioned(
        points, values, is_choice, weights, math.exp(best.x[-2]), math.exp(best.x[-1])
    )


def _conditioned(
    points: Array,
    values: Array,
    is_choice: NDArray[np.bool_],
    weights: Array,
    scale: float,
    noise: float,
) -> GaussianProcess:
    squares = np.tensordot(_differences(points, points, is_choice), weights, axes=(2, 0))
    covariance = scale * _matern(squares) + (noise + _JITTER) * np.eye(len(points))
    factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    coefficients = cho_solve((factor, True), values, check_finite=False)
    return GaussianProcess(points, is_choice, weights, scale, noise, factor, values, coefficients)


def _negative_log_posterior(
    parameters: Array, apart: Array, values: Array, log_median: float
) -> tuple[float, Array]:
    """And its gradient, by the logarithms of weights, scale and noise."""
    weights, scale, noise = np.exp(parameters[:-2]), *np.exp(parameters[-2:])
    count = len(values)
    squares = np.tensordot(apart, weights, axes=(2, 0))
    correlation = _matern(squares)
    covariance = scale * correlation + (noise + _JITTER) * np.eye(count)
    factor = np.linalg.cholesky(covariance)
    coefficients = cho_solve((factor, True), values, check_finite=False)
    inverse = cho_solve((factor, True), np.eye(count), check_finite=False)
    outer = inverse - np.outer(coefficients, coefficients)
    slope = scale * _matern_slope(squares) * outer
    by_weights = 0.5 * weights * np.tensordot(slope, apart, axes=([0, 1], [0, 1]))
    by_scale = 0.5 * scale * float(np.sum(outer * correlation))
    by_noise = 0.5 * noise * float(np.trace(outer))
    likelihood = 0.5 * float(values @ coefficients) + float(np.log(np.diag(factor)).sum())

    # Length scales and noise are log-normal beforehand, the scale of the function too.
    spread = (2 * _LENGTH_SPREAD) ** 2
    off = parameters[:-2] - log_median
    noise_off = parameters[-1] - math.log(_NOISE_MEDIAN)
    prior = 0.5 * (
        float(off @ off) / spread + parameters[-2] ** 2 + noise_off**2 / _NOISE_SPREAD**2
    )
    gradient = np.concatenate(
        [
            by_weights + off / spread,
            [by_scale + parameters[-2], by_noise + noise_off / _NOISE_SPREAD**2],
        ]
    )
    return likelihood + prior, gradient


def _differences(left: Array, right: Array, is_choice: NDArray[np.bool_]) -> Array:
    """Squared distances along each axis; along choices, 1 where they differ."""
    apart = left[:, None, :] - right[None, :, :]
    return np.where(is_choice, apart != 0, apart**2)


def _matern(squares: Array) -> Array:
    distance = _SQRT5 * np.sqrt(squares)
    result: Array = (1 + distance + 5.0 / 3.0 * squares) * np.exp(-distance)
    return result


def _matern_slope(squares: Array) -> Array:
    """The derivative by the squared distance."""
    distance = _SQRT5 * np.sqrt(squares)
    result: Array = -5.0 / 6.0 * (1 + distance) * np.exp(-distance)
    return result
