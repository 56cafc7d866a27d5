"""What the Kubernetes platform set out to reach."""

from __future__ import annotations

from collections.abc import Mapping

from bench.harness import Measurement, Result
from bench.kubernetes_cases import AT_SERVER, CALLS, JOBS
from bench.verdict import Verdict

TIMES_BARE = 1.2
REFRESH_CALLS = 3  # lists come in pages of 500
TIMES_REFERENCE = 50
_COUNTS = (CALLS, AT_SERVER)
_REFRESHES = ("kubernetes_refresh", "kubernetes_running", "kubernetes_distant")


def judge_kubernetes(measured: Mapping[str, Result]) -> list[Verdict]:
    """A verdict on every target of the Kubernetes platform whose case was measured."""
    verdicts = []
    if found := measured.get("kubernetes_import"):
        verdicts.append(_lighter(found))
    if found := measured.get("kubernetes_submit"):
        verdicts.append(_beside_bare(found))
    for key in _REFRESHES:
        if found := measured.get(key):
            verdicts += [_calls(found), _beside_reference(found)]
    if found := measured.get("kubernetes_watch"):
        verdicts.append(_silence(found))
    return verdicts


def _lighter(result: Result) -> Verdict:
    target = "`kubernetes_import`: less than importing the client, by minimum and by median"
    bare = _of_peer(result, "kubernetes")
    if bare is None:
        return Verdict(target, "the client took no part", None)
    ours = result.ours[-1]
    ratio = bare.median / ours.median
    met = ours.minimum < bare.minimum and ours.median < bare.median
    return Verdict(target, f"{ratio:.1f} times faster with {ours.name} (medians)", met)


def _beside_bare(result: Result) -> Verdict:
    target = f"`kubernetes_submit`: at most {TIMES_BARE} times the bare client"
    bare = _of_peer(result, "kubernetes")
    if not result.ours or bare is None:
        return _nobody(target)
    ratio = result.ours[0].median / bare.median
    return Verdict(target, f"{ratio:.2f} times (medians)", ratio <= TIMES_BARE)


def _calls(result: Result) -> Verdict:
    target = f"`{result.key}`: at most {REFRESH_CALLS} API calls"
    if not result.ours:
        return _nobody(target)
    calls = [one.facts[CALLS] for one in result.ours]
    found = " and ".join(f"{count:g}" for count in calls)
    return Verdict(target, f"{found}, first call", max(calls) <= REFRESH_CALLS)


def _beside_reference(result: Result) -> Verdict:
    target = f"`{result.key}`: at least {TIMES_REFERENCE} times faster than the reference, by job"
    reference = _of_peer(result, "reference-kubernetes")
    if not result.ours or reference is None:
        return _nobody(target)
    again, first = (_per_job(reference) / _per_job(one) for one in result.ours)
    found = f"{again:.0f} times (medians); {first:.0f} times by the first call of a client"
    return Verdict(target, found, again >= TIMES_REFERENCE)


def _silence(result: Result) -> Verdict:
    target = "`kubernetes_watch`: nothing is asked for while nothing happens"
    if not result.ours:
        return _nobody(target)
    # Of every round: a median would forgive a call now and then.
    sent = [sum(sample.facts[name] for sample in result.ours[0].samples) for name in _COUNTS]
    found = f"{sent[0]:g} calls sent, {sent[1]:g} seen at the server, in all rounds"
    return Verdict(target, found, not any(sent))


def _of_peer(result: Result, name: str) -> Measurement | None:
    """The first way in which a peer took part."""
    return next((one for one in result.peers if one.contender.peer == name), None)


def _per_job(one: Measurement) -> float:
    return one.median / one.facts[JOBS]


def _nobody(target: str) -> Verdict:
    return Verdict(target, "not all took part that it compares", None)
