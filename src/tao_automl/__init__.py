"""The AutoML interface under its other name: everything is in `tao_sdk.automl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tao_sdk.automl

if TYPE_CHECKING:
    from tao_sdk.automl import (
        AutoML,
        AutoMLRunner,
        Recommendation,
        format_result,
        query_status,
    )

__all__ = ["AutoML", "AutoMLRunner", "Recommendation", "format_result", "query_status"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(tao_sdk.automl, name)
