"""`AutoMLRunner` under its other name."""

from tao_sdk.automl.runner import AutoMLRunner

__all__ = ["AutoMLRunner"]
