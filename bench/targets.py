"""What we set out to reach, and whether a run did."""

from __future__ import annotations

from collections.abc import Sequence

from bench.docker_targets import judge_docker
from bench.harness import Measurement, Result
from bench.kubernetes_targets import judge_kubernetes
from bench.runner_targets import judge_runner
from bench.slurm_targets import judge_slurm
from bench.text import duration
from bench.verdict import Verdict

IMPORT_SECONDS = 0.040
COMMAND_SECONDS = 0.120
TIMES_FASTER = 50
RACES = ("import", "cli", "submit", "start", "burst")


def judge(results: Sequence[Result]) -> list[Verdict]:
    """A verdict on every target whose case was measured."""
    measured = {result.key: result for result in results}
    verdicts = []
    if found := measured.get("import"):
        verdicts.append(_start_within(found, "import tao_sdk", IMPORT_SECONDS))
    if found := measured.get("cli"):
        verdicts.append(_start_within(found, "tao-sdk --version", COMMAND_SECONDS))
    if found := measured.get("newest"):
        verdicts.append(_times_faster(found))
    verdicts += [_ahead_of_all(measured[key]) for key in RACES if key in measured]
    for judge_platform in (judge_docker, judge_slurm, judge_kubernetes, judge_runner):
        verdicts += judge_platform(measured)
    return verdicts


def _start_within(result: Result, name: str, limit: float) -> Verdict:
    assert result.floor is not None
    (one,) = (ours for ours in result.ours if ours.name == name)
    over = one.minimum - result.floor.minimum
    return Verdict(
        f"`{name}` under {duration(limit)} over bare Python (minimum)", duration(over), over < limit
    )


def _times_faster(result: Result) -> Verdict:
    target = f"`{result.key}`: at least {TIMES_FASTER} times faster than the reference"
    if not result.peers:
        return Verdict(target, "the reference took no part", None)
    (reference,) = result.peers
    times = reference.median / result.ours[0].median
    return Verdict(target, f"{times:.0f} times (medians)", times >= TIMES_FASTER)


def _ahead_of_all(result: Result) -> Verdict:
    target = f"`{result.key}`: ahead of every peer, by minimum and by median"
    if not result.peers:
        return Verdict(target, "no peer took part", None)
    behind = [
        f"{ours.name} ({duration(ours.median)}) is behind {peer.name} ({duration(peer.median)})"
        for ours in result.ours
        for peer in result.peers
        if not _ahead(ours, peer)
    ]
    best = min(result.peers, key=lambda peer: peer.median)
    ahead = f"the nearest is {best.name} ({duration(best.median)})"
    return Verdict(target, "; ".join(behind) or ahead, not behind)


def _ahead(one: Measurement, other: Measurement) -> bool:
    return one.minimum < other.minimum and one.median < other.median
