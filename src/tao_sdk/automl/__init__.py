"""Tuning: a search over the specs of a model.

`AutoML` proposes specs and is told what they reached; a program runs the trainings itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tao_sdk.automl.programmatic import AutoML, Recommendation

__all__ = ["AutoML", "Recommendation"]


def __getattr__(name: str) -> Any:
    # Optuna, NumPy and SciPy take a second to import: only for programs that search.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tao_sdk.automl import programmatic
    except ModuleNotFoundError as error:
        if error.name not in ("optuna", "numpy", "scipy", "threadpoolctl"):
            raise
        raise ImportError(
            f"tao_sdk.automl needs {error.name}: install the extra `automl`"
        ) from error
    return getattr(programmatic, name)
