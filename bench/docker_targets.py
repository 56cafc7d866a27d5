"""What the Docker platform set out to reach."""

from __future__ import annotations

from collections.abc import Mapping

from bench.docker_cases import CALLS, FIRST_LINE, GROWN, JOBS
from bench.harness import Measurement, Result
from bench.text import duration
from bench.verdict import Verdict

TIMES_BARE = 1.15
TIMES_REFERENCE = 50
FIRST_LINE_SECONDS = 0.200
GROWN_MIB = 16.0


def judge_docker(measured: Mapping[str, Result]) -> list[Verdict]:
    """A verdict on every target of the Docker platform whose case was measured."""
    verdicts = []
    if found := measured.get("docker_start"):
        verdicts.append(_beside_bare(found))
    if found := measured.get("docker_sweep"):
        verdicts += _sweep(found)
    if found := measured.get("docker_log"):
        verdicts += _log(found)
    return verdicts


def _beside_bare(result: Result) -> Verdict:
    assert result.floor is not None
    ratio = result.ours[0].median / result.floor.median
    target = f"`docker_start`: at most {TIMES_BARE} times docker-py used bare"
    return Verdict(target, f"{ratio:.2f} times (medians)", ratio <= TIMES_BARE)


def _sweep(result: Result) -> list[Verdict]:
    ours = result.ours[0]
    calls = ours.facts[CALLS]
    one_call = Verdict("`docker_sweep`: one API call", f"{calls:.0f}", calls == 1)
    target = f"`docker_sweep`: at least {TIMES_REFERENCE} times faster than the reference, by job"
    if not result.peers:
        return [one_call, Verdict(target, "the reference took no part", None)]
    ratio = _per_job(result.peers[0]) / _per_job(ours)
    return [one_call, Verdict(target, f"{ratio:.0f} times (medians)", ratio >= TIMES_REFERENCE)]


def _per_job(one: Measurement) -> float:
    return one.median / one.facts[JOBS]


def _log(result: Result) -> list[Verdict]:
    first, grown = (result.ours[0].facts[name] for name in (FIRST_LINE, GROWN))
    within = duration(FIRST_LINE_SECONDS)
    return [
        Verdict(
            f"`docker_log`: first line within {within}", duration(first), first < FIRST_LINE_SECONDS
        ),
        Verdict(
            f"`docker_log`: memory grows by less than {GROWN_MIB:.0f} MiB",
            f"{grown:.1f} MiB",
            grown < GROWN_MIB,
        ),
    ]
