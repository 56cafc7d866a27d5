"""What the SLURM platform set out to reach."""

from __future__ import annotations

from collections.abc import Mapping

from bench.harness import Measurement, Result
from bench.slurm_bed import ROUND_TRIPS
from bench.slurm_cases import JOBS
from bench.text import duration
from bench.verdict import Verdict

SUBMIT_ROUND_TRIPS = 2
REFRESH_ROUND_TRIPS = 1
TIMES_ONE_BY_ONE = 100
CANCEL_SECONDS = 1.0


def judge_slurm(measured: Mapping[str, Result]) -> list[Verdict]:
    """A verdict on every target of the SLURM platform whose case was measured."""
    verdicts = []
    if found := measured.get("slurm_submit"):
        verdicts += _round_trips(found, SUBMIT_ROUND_TRIPS)
    if found := measured.get("slurm_refresh"):
        verdicts += _round_trips(found, REFRESH_ROUND_TRIPS)
        verdicts += _one_by_one(found)
    if found := measured.get("slurm_cancel"):
        verdicts.append(_cancel(found))
    return verdicts


def _round_trips(result: Result, limit: int) -> list[Verdict]:
    target = f"`{result.key}`: at most {limit} round trip{'s' if limit > 1 else ''}"
    if not result.ours:
        return [_no_cluster(target)]
    return [
        Verdict(target, f"{needed:g} with {one.name}", needed <= limit)
        for one in result.ours
        for needed in [one.facts[ROUND_TRIPS]]
    ]


def _one_by_one(result: Result) -> list[Verdict]:
    target = f"`{result.key}`: at least {TIMES_ONE_BY_ONE} times faster than one call per job"
    if not result.ours:
        return [_no_cluster(target)]
    ours = _per_job(result.ours[0])
    return [
        Verdict(
            target, f"{ratio:.0f} times {peer.name} (medians, by job)", ratio >= TIMES_ONE_BY_ONE
        )
        for peer in result.peers
        for ratio in [_per_job(peer) / ours]
    ]


def _per_job(one: Measurement) -> float:
    return one.median / one.facts[JOBS]


def _cancel(result: Result) -> Verdict:
    target = f"`{result.key}`: under {duration(CANCEL_SECONDS)}"
    if not result.ours:
        return _no_cluster(target)
    took = result.ours[0].median
    return Verdict(target, f"{duration(took)} (median)", took < CANCEL_SECONDS)


def _no_cluster(target: str) -> Verdict:
    return Verdict(target, "there was no cluster", None)
