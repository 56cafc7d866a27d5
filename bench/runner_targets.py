"""What the runner set out to reach: speed beside others, memory, start and size."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from bench.harness import Measurement, Result
from bench.place import KIB
from bench.runner_cases import BYTES, CONFIG, PASSTHROUGH
from bench.text import duration
from bench.transfer_cases import LARGEST, OBJECTS, TOGETHER
from bench.verdict import Verdict

BESIDE_S5CMD = ("many_down", "many_up", "large_down", "large_up", "distant_down", "distant_up")
"""Where ours must be at least as fast; and, times as fast, what we would like."""
GOALS = {"many_down": 1.5, "many_up": 1.5, "large_down": 1.2, "large_up": 1.2}
TIMES_REFERENCE = {"many_down": 5.0, "many_up": 5.0, "distant_down": 10.0, "distant_up": 10.0}
MEMORY_MIB = 150.0
START_SECONDS = 0.150
SIZES = {CONFIG: 48 * KIB, PASSTHROUGH: 16 * KIB}


def judge_runner(measured: Mapping[str, Result]) -> list[Verdict]:
    """A verdict on every target of the runner whose case was measured."""
    verdicts = []
    for key in BESIDE_S5CMD:
        if key in measured:
            verdicts.append(_beside(measured[key], "s5cmd", 1.0, "target"))
            if key in GOALS:
                verdicts.append(_beside(measured[key], "s5cmd", GOALS[key], "goal"))
    for key, times in TIMES_REFERENCE.items():
        if key in measured:
            verdicts.append(_beside(measured[key], "reference-runner", times, "target"))
    for key in ("memory_many", "memory_large"):
        if key in measured:
            verdicts += [_fits(measured[key], one) for one in measured[key].ours]
    if found := measured.get("runner_start"):
        verdicts += [_starts(found, one) for one in found.ours]
    if found := measured.get("command_size"):
        verdicts += [_is_small(one, SIZES[one.name]) for one in found.ours]
    return verdicts


def _beside(result: Result, peer: str, times: float, kind: str) -> Verdict:
    words = "at least level with" if times == 1.0 else f"at least {times:g} times as fast as"
    name = {"reference-runner": "the reference"}.get(peer, peer)
    target = f"`{result.key}`: {words} {name}" + (" (goal)" if kind == "goal" else "")
    others = [one for one in result.peers if one.contender.peer == peer]
    if not others or not result.ours:
        return Verdict(target, f"{name} took no part", None)
    ours, other = result.ours[0], others[0]
    # Not everybody moves as many objects.
    scale = ours.facts[OBJECTS] / other.facts[OBJECTS]
    ratio = scale * other.median / ours.median
    return Verdict(
        target,
        f"{ratio:.2f} times by the medians, {scale * _in_turn(ours, other):.2f} round by round",
        ratio >= times,
    )


def _in_turn(ours: Measurement, other: Measurement) -> float:
    """The median of what each round says: a busy minute is in both of its times."""
    return statistics.median(
        theirs.seconds / mine.seconds
        for mine, theirs in zip(ours.samples, other.samples, strict=True)
    )


def _fits(result: Result, one: Measurement) -> Verdict:
    largest, together = one.facts[LARGEST], one.facts[TOGETHER]
    return Verdict(
        f"{result.case.name}, {one.name}: under {MEMORY_MIB:.0f} MiB",
        f"{largest:.0f} MiB in the largest process, {together:.0f} MiB in all",
        max(largest, together) < MEMORY_MIB,
    )


def _starts(result: Result, one: Measurement) -> Verdict:
    assert result.floor is not None
    over = one.minimum - result.floor.minimum
    return Verdict(
        f"{one.name}: under {duration(START_SECONDS)} over bare Python (minimum)",
        duration(over),
        over < START_SECONDS,
    )


def _is_small(one: Measurement, limit: int) -> Verdict:
    size = one.facts[BYTES]
    return Verdict(f"{one.name}: at most {limit:,} bytes", f"{size:,.0f} bytes", size <= limit)
