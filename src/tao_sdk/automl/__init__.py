"""Tuning: a search over the specs of a model.

`AutoMLRunner` trains with jobs of a platform. `AutoML` only proposes specs; a
program runs the trainings itself and reports what they reached.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tao_sdk.automl.programmatic import AutoML, Recommendation
    from tao_sdk.automl.runner import AutoMLRunner
    from tao_sdk.automl.status import format_result, query_status

__all__ = ["AutoML", "AutoMLRunner", "Recommendation", "format_result", "query_status"]

_MODULES = {
    "AutoML": "programmatic",
    "AutoMLRunner": "runner",
    "Recommendation": "programmatic",
    "format_result": "status",
    "query_status": "status",
}
_PACKAGES = frozenset({"cmaes", "numpy", "optuna", "scipy", "threadpoolctl"})


def __getattr__(name: str) -> Any:
    # Optuna, NumPy and SciPy take a second to import: only for programs that search.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise ImportError(
            f"tao_sdk.automl needs {error.name}: install the extra `automl`"
        ) from error
