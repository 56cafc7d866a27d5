"""Kubernetes' way to write amounts: 500m, 2, 64Gi."""

from __future__ import annotations

import re
from typing import Any

from tao_sdk.errors import ValidationError

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGTPE]|[KMGTPE]i)?")
_UNITS = {
    "m": 0.001,
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}


def check_quantity(where: str, value: Any) -> str:
    """An amount as Kubernetes writes it; numbers are accepted as well."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = f"{value:g}" if isinstance(value, float) else str(value)
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise ValidationError(
            f"{where}: {value!r} is not an amount: a number, or text such as 500m, 16, 64Gi"
        )
    return value


def amount(text: str) -> float:
    """How much it is, in units; what nobody understands is nothing."""
    match = _QUANTITY.fullmatch(text)
    return float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
