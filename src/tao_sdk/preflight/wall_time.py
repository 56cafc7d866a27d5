"""The wall time of SLURM jobs: what the site allows, as far as it is known. Pure but for settings.

The bank has a longest time for the partitions that it names. Of other partitions only the cluster
knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tao_sdk import settings
from tao_sdk.errors import ValidationError
from tao_sdk.platforms.slurm.resources import warned_after
from tao_sdk.preflight.checks import Check, failed, passed, warning

_USUAL_HOURS = 4.0
_NONE: Mapping[str, Any] = MappingProxyType({})


class Hours(NamedTuple):
    """How long a job may take, and when it is asked to stop."""

    wall: float
    timeout: float


def hours_asked(defaults: Mapping[str, Any], options: Mapping[str, Any] = _NONE) -> Hours:
    """The hours that a launch would ask for; `ValidationError` when they are not numbers.

    `options` are the job's own, which win over the variables.
    """
    own, usual = options.get("time_hours"), defaults.get("time_hours", _USUAL_HOURS)
    wall = _setting("SLURM_TIME_HOURS", usual) if own is None else _number("time_hours", str(own))
    return Hours(wall, _setting("SLURM_TIMEOUT_HOURS", warned_after(wall)))


def partitions_asked(options: Mapping[str, Any] = _NONE) -> list[str]:
    """The partitions that a launch goes to: the job's own, else those of the environment."""
    details = options.get("backend_details") or {}
    own = options.get("partition") or details.get("partition")
    return split(str(own or settings.lookup("SLURM_PARTITION")))


def wall_time_checks(
    defaults: Mapping[str, Any], options: Mapping[str, Any] = _NONE
) -> Iterator[Check]:
    """Whether the hours fit each other and the partitions that the bank knows."""
    try:
        hours = hours_asked(defaults, options)
    except ValidationError as error:
        yield failed("wall_time", str(error), "Give hours as a number, such as SLURM_TIME_HOURS=4.")
        return
    setting = "SLURM_TIME_HOURS" if options.get("time_hours") is None else "time_hours"
    told = f"{setting}={hours.wall:g}, SLURM_TIMEOUT_HOURS={hours.timeout:g}"
    if hours.timeout >= hours.wall and settings.lookup("SLURM_TIMEOUT_HOURS"):
        yield failed(
            "wall_time",
            f"{told}: the job would be ended before it is asked to save and stop",
            f"Set SLURM_TIMEOUT_HOURS below {hours.wall:g}.",
        )
        return
    longest = float(defaults.get("max_time_hours", _USUAL_HOURS))
    named = set(split(str(defaults.get("partition", ""))))
    asked = partitions_asked(options)
    if hours.wall <= longest:
        yield passed("wall_time", told)
    elif asked and set(asked) <= named:
        yield failed(
            "wall_time",
            f"{told}: {', '.join(asked)} allow {longest:g} hours at most",
            f"Set {setting}={longest:g} (jobs that reach it are requeued and resume), or "
            "choose another partition.",
        )
    else:
        others = ", ".join(name for name in asked if name not in named) or "no partition"
        yield warning(
            "wall_time",
            f"{told}: more than the usual {longest:g} hours; whether {others} allows it is up to "
            "the cluster",
        )


def partition_check(
    told: str,
    limits: Mapping[str, int | None],
    hours: float,
    options: Mapping[str, Any] = _NONE,
) -> Check:
    """Whether the cluster has the partitions, lets jobs in, and for as long as is asked.

    `told` is what `scontrol show partition` prints; limits are in minutes.
    """
    asked = partitions_asked(options)
    there = ", ".join(sorted(limits))
    unknown = [name for name in asked if name not in limits]
    if unknown:
        return failed(
            "partition",
            f"the cluster has no partition {', '.join(unknown)}; it has {there}",
            "Set SLURM_PARTITION to partitions of this cluster, by comma.",
        )
    closed = closed_partitions(told)
    open_ones = [name for name in asked if name not in closed]
    if asked and not open_ones:
        return failed(
            "partition",
            f"{', '.join(asked)} takes no jobs now",
            "Choose another partition (SLURM_PARTITION), or wait until it is open.",
        )
    short = {
        name: minutes
        for name in open_ones
        if (minutes := limits[name]) is not None and minutes < hours * 60
    }
    shown = ", ".join(f"{name} {minutes / 60:g} h" for name, minutes in short.items())
    if short and len(short) == len(open_ones):
        longest = max(short.values()) / 60
        return failed(
            "partition",
            f"{hours:g} hours are asked for, and the cluster allows less: {shown}",
            f"Set SLURM_TIME_HOURS={longest:g} or less, or choose another partition.",
        )
    if short or closed & set(asked):
        late = [f"{name} takes no jobs now" for name in asked if name in closed]
        return warning("partition", "; ".join([*late, *([f"too short: {shown}"] if short else [])]))
    listed = ", ".join(f"{name} ({_limit(limits[name])})" for name in asked)
    return passed("partition", listed or "the cluster's default partition")


def closed_partitions(told: str) -> set[str]:
    """Partitions that take or start no jobs."""
    closed = set()
    for line in told.splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if fields.get("State", "UP") not in ("UP",) and "PartitionName" in fields:
            closed.add(fields["PartitionName"])
    return closed


def split(text: str) -> list[str]:
    return [part for part in re.split(r"[\s,]+", text) if part]


def _limit(minutes: int | None) -> str:
    return "no limit" if minutes is None else f"{minutes / 60:g} h"


def _setting(name: str, default: Any) -> float:
    return _number(name, settings.lookup(name) or str(default))


def _number(name: str, text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours < float("inf"):
        raise ValidationError(f"{name}={text!r} is not a number of hours above 0")
    return hours
