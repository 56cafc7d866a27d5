"""Output of the `brev` program as data, and what its messages mean: pure.

Its JSON has had several shapes: lists of instances as a list, or as an object with `workspaces`;
offers with `gpu` and `gpuCount`, or with `gpu_name` and `gpu_count`. All of them are understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tao_sdk.untrusted import number

_VERSION = re.compile(r"\bv?(\d{1,9})\.(\d{1,9})\.(\d{1,9})\b")
_RUNNING = ("running", "ready")
_GOING = ("deleting", "terminating", "terminated", "deleted")
_FAILED = ("failure", "failed", "error")
_STOPPED = ("stopped", "stopping")
# "EOF" is what the program prints when its question "would you like to log in?" finds no input.
_NO_LOGIN = re.compile(
    r"\b401\b|unauthori[sz]ed|logged out|not logged in|log in\?|\bErrorForbidden\b|\b403\b|"
    r"(?m:^|: )EOF\b|refresh token",
    re.IGNORECASE,
)
_NO_CAPACITY = re.compile(
    r"capacity|insufficient|out of stock|not available|(?<!code = )unavailable|quota|"
    r"no instances? (types? )?"
    r"(match|available)",
    re.IGNORECASE,
)
_NO_SUCH = re.compile(
    r"\b(?:workspace|instance|dev environment)(?:\b[^\n:]*\b|:\s*)(?:not found|does not exist)|"
    r"\bno (?:such )?(?:workspace|instance|dev environment)\b|"
    r"could not find (?:\w+ )?(?:workspace|instance|dev environment)\b",
    re.IGNORECASE,
)
_TAKEN = re.compile(r"already (exists|in use|taken)|duplicate", re.IGNORECASE)
# The last line of a failed `create` is always the same. The cause is in its progress output, after
# the source position of the program's own trace.
_WHY_NOT_MADE = re.compile(
    r"\bFailed: (?P<why>.*?)\s*(?=^Type \S+ had failures|^Warning: Only created|\Z)",
    re.DOTALL | re.MULTILINE,
)


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
    def lost(self) -> bool:
        """Whatever was on it cannot be had again."""
        return self.going or self.failed

    @property
    def stopped(self) -> bool:
        return self.status.lower() in _STOPPED


class Offer(NamedTuple):
    """A type of instance that can be had."""

    type: str
    gpu: str = ""
    gpus: int = 0
    price: float | None = None
    """For an hour, in dollars; None if it is not known."""
    provider: str = ""
    region: str = ""
    """Like `arch`, only from some versions of the program."""
    arch: str = ""
    """Of its processor."""

    def __str__(self) -> str:
        what = f"{self.gpus} x {self.gpu}" if self.gpus else "no GPU"
        place = " ".join(word for word in (self.provider, self.region) if word)
        return f"{self.type} ({what}, {place + ', ' if place else ''}{cost(self.price)})"


class NotUnderstoodError(ValueError):
    """The answer has no shape that we know."""


def cost(price: float | None) -> str:
    """A price as text."""
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


def parse_organization(text: str) -> str:
    """`brev ls orgs --json`: the id of the active organisation; "" if none is named."""
    active = [row for row in _rows(_json(text)) if row.get("is_active") is True]
    return str(active[0].get("id") or "") if len(active) == 1 else ""


def parse_offers(text: str) -> list[Offer]:
    """`brev search --json`, in the order in which they are offered."""
    found = []
    for row in _rows(_json(text)):
        price = row.get("price_per_hour", row.get("price"))
        found.append(
            Offer(
                type=str(row.get("type", "")),
                gpu=str(row.get("gpu_name") or row.get("gpu") or ""),
                gpus=number(str(row.get("gpu_count", row.get("gpuCount")))) or 0,
                price=float(price) if isinstance(price, (int, float)) and price > 0 else None,
                provider=str(row.get("provider") or ""),
                region=str(row.get("region") or row.get("location") or ""),
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
    """The document in the answer: a note about a new version may precede it, a tutorial follow."""
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


def why_not_made(output: str) -> str:
    """The cause in the output of a failed `create`; "" if there is none."""
    found = list(_WHY_NOT_MADE.finditer(output))
    lines = [line.strip(" :") for line in found[-1]["why"].splitlines()] if found else []
    return next((line for line in reversed(lines) if line), "")


def says_no_login(complaint: str) -> bool:
    return bool(_NO_LOGIN.search(complaint))


def says_no_capacity(complaint: str) -> bool:
    return bool(_NO_CAPACITY.search(complaint))


def says_no_such_instance(complaint: str) -> bool:
    return bool(_NO_SUCH.search(complaint))


def says_name_taken(complaint: str) -> bool:
    return bool(_TAKEN.search(complaint))
