"""What the `brev` program says, read into plain facts: pure.

Its JSON has had several shapes: lists of instances as a list, or as an object with `workspaces`;
offers with `gpu` and `gpuCount`, or with `gpu_name` and `gpu_count`. All of them are understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.(\d+)\b")
_RUNNING = ("running", "ready")
_GOING = ("deleting", "terminating", "terminated", "deleted")
_FAILED = ("failure", "failed", "error", "unhealthy")
_STOPPED = ("stopped", "stopping")


class Instance(NamedTuple):
    """One line of `brev ls`."""

    name: str
    status: str
    id: str = ""
    type: str = ""
    gpu: str = ""

    @property
    def running(self) -> bool:
        return self.status.lower() in _RUNNING

    @property
    def going(self) -> bool:
        """It is being deleted, or has been."""
        return self.status.lower() in _GOING

    @property
    def failed(self) -> bool:
        return self.status.lower() in _FAILED

    @property
    def stopped(self) -> bool:
        return self.status.lower() in _STOPPED


class Offer(NamedTuple):
    """A type of instance that can be had."""

    type: str
    gpu: str = ""
    gpus: int = 0
    price: float | None = None
    """For an hour, in dollars; None where it was not said."""
    provider: str = ""
    arch: str = ""
    """Of its processor; not every version of the program says so."""

    def __str__(self) -> str:
        what = f"{self.gpus} x {self.gpu}" if self.gpus else "no GPU"
        return f"{self.type} ({what}, {cost(self.price)})"


class NotUnderstoodError(ValueError):
    """The answer has no shape that we know."""


def cost(price: float | None) -> str:
    """A price for people."""
    return "price not known" if price is None else f"${price:.2f} an hour"


def parse_instances(text: str) -> list[Instance]:
    """`brev ls --json`."""
    rows = _json(text)
    if isinstance(rows, dict):
        if "workspaces" not in rows:
            raise NotUnderstoodError("an object without `workspaces`")
        rows = rows["workspaces"]
    return [
        Instance(
            name=str(row.get("name") or ""),
            status=str(row.get("status") or ""),
            id=str(row.get("id") or ""),
            type=str(row.get("instance_type") or row.get("instanceType") or ""),
            gpu=str(row.get("gpu") or ""),
        )
        for row in _rows(rows)
    ]


def parse_offers(text: str) -> list[Offer]:
    """`brev search --json`, in the order in which they are offered."""
    found = []
    for row in _rows(_json(text)):
        price = row.get("price_per_hour", row.get("price"))
        found.append(
            Offer(
                type=str(row.get("type", "")),
                gpu=str(row.get("gpu_name") or row.get("gpu") or ""),
                gpus=int(row.get("gpu_count", row.get("gpuCount")) or 0),
                price=float(price) if isinstance(price, (int, float)) and price > 0 else None,
                provider=str(row.get("provider") or ""),
                arch=str(row.get("arch") or ""),
            )
        )
    return [offer for offer in found if offer.type]


def parse_version(text: str) -> tuple[int, int, int] | None:
    """`brev --version`; None where no number is in it."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def parse_flags(text: str) -> frozenset[str]:
    """The flags that a `--help` names."""
    return frozenset(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", text))


def _json(text: str) -> Any:
    """The document in the answer, without what is said around it: before it there may be a note
    about a new version, after it a tutorial."""
    for start in (0, *(match.start() for match in re.finditer(r"(?m)^[\[{]", text))):
        try:
            return json.JSONDecoder().raw_decode(text, start)[0]
        except ValueError:
            continue
    raise NotUnderstoodError("no JSON")


def _rows(value: Any) -> list[Mapping[str, Any]]:
    if value is None:
        return []  # how the program writes an empty list
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise NotUnderstoodError("not a list of objects")
    return value
