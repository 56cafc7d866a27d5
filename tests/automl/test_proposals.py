"""Which points the `auto` search proposes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tao_sdk.automl.axes import Axes
from tao_sdk.automl.dimensions import Choice, Dimension, Real, Whole
from tao_sdk.automl.gaussian_process import fit
from tao_sdk.automl.proposals import Outcome, propose, startup_count, warped

AXES: dict[str, Dimension] = {
    "lr": Real(1e-6, 1e-1, log=True),
    "layers": Whole(1, 8),
    "optimizer": Choice(("adam", "sgd", "lion")),
    "augment": Choice((False, True)),
}
DEFAULT = {"lr": 1e-4, "layers": 3, "optimizer": "adam", "augment": False}


def loss(point: dict[str, Any]) -> float:
    best = {"adam": -3.0, "sgd": -1.5, "lion": -4.0}[point["optimizer"]]
    value = 0.2 + 0.05 * (math.log10(point["lr"]) - best) ** 2 + 0.01 * abs(point["layers"] - 5)
    return value + (0.02 if point["augment"] else 0.0) + (point["optimizer"] != "sgd") * 0.03


def search(
    trials: int,
    seed: int,
    evaluate: Callable[[dict[str, Any]], float | None] = loss,
    running: int = 0,
) -> list[tuple[dict[str, Any], Outcome, str]]:
    """The trials of a search of which the last `running` have no value yet."""
    axes = Axes(AXES)
    found: list[tuple[dict[str, Any], Outcome, str]] = []
    for number in range(trials):
        done = [
            outcome if number - index > running else outcome._replace(value=None, failed=False)
            for index, (_, outcome, _) in enumerate(found)
        ]
        row, source = propose(
            axes, axes.row(DEFAULT), done, seed=seed, number=number, budget=trials
        )
        point = axes.point(row)
        value = evaluate(point)
        found.append((point, Outcome(row, value, failed=value is None), source))
    return found


def best(trials: list[tuple[dict[str, Any], Outcome, str]]) -> float:
    return min(outcome.value for _, outcome, _ in trials if outcome.value is not None)


def test_the_default_comes_first() -> None:
    [(point, _, source)] = search(1, 0)
    assert point == pytest.approx(DEFAULT)
    assert source == "default"


def test_start_up_takes_turns_and_then_the_model_proposes() -> None:
    sources = [source for _, _, source in search(20, 0)]
    start = startup_count(len(AXES), 20)
    assert sources[:start] == (["default"] + ["near", "sobol"] * 10)[:start]
    assert set(sources[start:]) == {"gp"}


def test_the_same_history_seed_and_number_give_the_same_point() -> None:
    first, second = search(14, 3), search(14, 3)
    assert [point for point, _, _ in first] == [point for point, _, _ in second]
    assert [point for point, _, _ in first] != [point for point, _, _ in search(14, 4)]


def test_it_finds_what_random_search_does_not() -> None:
    ours = [best(search(25, seed)) for seed in range(3)]
    axes = Axes(AXES)

    def at_random(seed: int) -> float:
        numbers = np.random.default_rng(seed).random((25, len(AXES)))
        return min(loss(axes.point(row)) for row in axes.spread(numbers))

    theirs = [at_random(seed) for seed in range(3)]
    assert np.median(ours) < np.median(theirs)
    assert np.median(ours) < 0.203  # 0.2 is the least


def test_trials_that_run_send_the_next_ones_elsewhere() -> None:
    trials = search(24, 1, running=4)
    points = [tuple(point.values()) for point, _, _ in trials]
    assert len(set(points)) == len(points)
    assert {point["optimizer"] for point, _, _ in trials} == {"adam", "sgd", "lion"}


def test_failures_keep_the_search_away() -> None:
    """Three of four layer counts do not fit into the memory."""

    def fits(point: dict[str, Any]) -> float | None:
        return None if point["layers"] > 4 else loss(point)

    failures = [
        sum(outcome.failed for _, outcome, source in search(30, seed, fits) if source == "gp")
        for seed in range(2)
    ]
    assert np.mean(failures) < 8


def test_all_failed_so_far_is_no_obstacle() -> None:
    assert len(search(12, 0, lambda _: None)) == 12


class TestWarped:
    def of(self, *values: float | None) -> list[float]:
        row = np.zeros(1)
        return list(warped([Outcome(row, value, failed=value is None) for value in values]))

    def test_the_better_half_keeps_its_shape(self) -> None:
        first, second, third, *_ = self.of(0.0, 1.0, 2.0, 3.0, 4.0)
        assert second - first == pytest.approx(third - second)

    def test_how_bad_a_bad_trial_was_does_not_matter(self) -> None:
        assert self.of(0.0, 1.0, 2.0, 3.0, 1e30) == self.of(0.0, 1.0, 2.0, 3.0, 4.0)

    def test_failures_are_worst(self) -> None:
        values = self.of(0.0, None, 2.0, 3.0, None)
        assert values[1] == values[4] == max(values)
        assert np.isfinite(values).all()

    def test_equal_values_are_no_error(self) -> None:
        assert np.isfinite(self.of(1.0, 1.0, 1.0)).all()


class TestGaussianProcess:
    def test_it_passes_near_what_it_knows(self) -> None:
        points = np.linspace(0, 1, 12)[:, None]
        values = np.sin(6 * points[:, 0])
        model = fit(points, values, np.array([False]))
        between = points[:-1] + 0.04
        mean, variance = model.predict(between)
        assert mean == pytest.approx(np.sin(6 * between[:, 0]), abs=0.05)
        assert (variance < 0.05).all()

    def test_an_axis_without_effect_gets_a_small_weight(self) -> None:
        random = np.random.default_rng(0)
        points = random.random((40, 2))
        model = fit(points, np.sin(6 * points[:, 0]), np.array([False, False]))
        assert model.weights[0] > 20 * model.weights[1]

    def test_gradients_are_those_of_the_predictions(self) -> None:
        random = np.random.default_rng(1)
        points = np.column_stack([random.random((15, 2)), random.integers(3, size=15)])
        is_choice = np.array([False, False, True])
        model = fit(points, random.standard_normal(15), is_choice)
        here, step = np.array([0.3, 0.6, 1.0]), 1e-6
        _, _, mean_slope, variance_slope = model.slopes(here)
        for column in (0, 1):
            beside = np.vstack([here, here])
            beside[:, column] += [-step, step]
            mean, variance = model.predict(beside)
            assert mean_slope[column] == pytest.approx((mean[1] - mean[0]) / (2 * step), rel=1e-3)
            slope = (variance[1] - variance[0]) / (2 * step)
            assert variance_slope[column] == pytest.approx(slope, rel=1e-2, abs=1e-6)
