"""The axes of a space as columns of an array, which is what a model computes with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tao_sdk.automl.dimensions import Choice, Dimension
from tao_sdk.automl.gaussian_process import Array

__all__ = ["Axes"]


class Axes:
    """Numbers are positions in [0, 1]; choices are the number of the option."""

    def __init__(self, dimensions: Mapping[str, Dimension]) -> None:
        self.names = list(dimensions)
        self._dimensions = list(dimensions.values())
        self.is_choice: NDArray[np.bool_] = np.array(
            [isinstance(one, Choice) for one in self._dimensions]
        )

    def row(self, point: Mapping[str, Any]) -> Array:
        """A point as a row."""
        return np.array(
            [
                float(axis.index(point[name]))
                if isinstance(axis, Choice)
                else axis.position_of(point[name])
                for name, axis in zip(self.names, self._dimensions, strict=True)
            ]
        )

    def point(self, row: Array) -> dict[str, Any]:
        """A row as a point."""
        return {
            name: axis.options[int(number)]
            if isinstance(axis, Choice)
            else axis.value_at(float(number))
            for name, axis, number in zip(self.names, self._dimensions, row, strict=True)
        }

    def rounded(self, rows: Array) -> Array:
        """The rows, each number moved to the position that stands for its value."""
        result: Array = rows.copy()
        for column, axis in enumerate(self._dimensions):
            if not isinstance(axis, Choice):
                result[:, column] = [
                    axis.position_of(axis.value_at(float(number))) for number in rows[:, column]
                ]
        return result

    def spread(self, uniform: Array) -> Array:
        """Rows from uniform numbers in [0, 1]; options come as often as their weights say."""
        result: Array = uniform.copy()
        for column, axis in enumerate(self._dimensions):
            if isinstance(axis, Choice):
                result[:, column] = [
                    axis.index(axis.value_at(float(number))) for number in uniform[:, column]
                ]
        return result

    def near(
        self, center: Array, count: int, width: float, share: float, random: np.random.Generator
    ) -> Array:
        """Rows around a center: each axis is changed with the probability `share`, numbers by a
        normal step of this width, choices to any option."""
        axes = len(center)
        changed = random.random((count, axes)) < share
        changed[np.arange(count), random.integers(axes, size=count)] = True  # at least one
        steps = np.clip(center + width * random.standard_normal((count, axes)), 0.0, 1.0)
        anywhere = self.spread(random.random((count, axes)))
        rows: Array = np.where(changed, np.where(self.is_choice, anywhere, steps), center)
        return rows
