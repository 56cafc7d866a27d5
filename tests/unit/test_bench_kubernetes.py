"""The Kubernetes part of the benchmarks: what is judged, what is counted, one small run of all."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `bench`

from bench import kubernetes_cases
from bench.__main__ import CASES, KUBERNETES
from bench.harness import Case, Contender, Measurement, Result, Sample, measure
from bench.kubernetes_bed import Bed, reads_in
from bench.kubernetes_cases import AT_SERVER, CALLS, JOBS
from bench.kubernetes_targets import judge_kubernetes
from bench.peers import PEERS, leave_out
from bench.place import QUICK, Place
from bench.verdict import Verdict

from lab.kubernetes import CONTROL_PLANE, KubernetesLab, shared_cluster

REFERENCE, BARE = "reference-kubernetes", "kubernetes"
ON_A_CLUSTER = [key for key in KUBERNETES if key != "kubernetes_import"]


def never() -> Sample:
    raise AssertionError("nothing is run here")


def taken(seconds: float, facts: Mapping[str, float] | None = None, peer: str = "") -> Measurement:
    name = peer or "ours"
    return Measurement(Contender(name, never, peer=peer), [Sample(seconds, facts or {})])


def verdicts(key: str, measurements: Sequence[Measurement]) -> list[Verdict]:
    case = Case("a case", "", [one.contender for one in measurements])
    return judge_kubernetes({key: Result(key, case, measurements, 0.5)})


# -- targets


@pytest.mark.parametrize(("seconds", "met"), [(1.19, True), (1.21, False)])
def test_a_submission_beside_the_bare_client(seconds: float, met: bool) -> None:
    ways = [taken(seconds), taken(9.0, peer=REFERENCE), taken(1.0, peer=BARE)]
    (verdict,) = verdicts("kubernetes_submit", ways)
    assert verdict.met is met


@pytest.mark.parametrize("key", ["kubernetes_refresh", "kubernetes_running", "kubernetes_distant"])
@pytest.mark.parametrize(
    ("calls", "theirs", "expected"), [(3.0, 0.51, [True, True]), (4.0, 0.49, [False, False])]
)
def test_a_refresh_beside_the_reference_by_the_job(
    key: str, calls: float, theirs: float, expected: list[bool]
) -> None:
    ours = taken(1.0, {CALLS: 0.0, JOBS: 1000.0})
    first = taken(3.0, {CALLS: calls, JOBS: 1000.0})
    reference = taken(theirs, {CALLS: 30.0, JOBS: 10.0}, REFERENCE)
    assert [one.met for one in verdicts(key, [ours, first, reference])] == expected
    assert [one.met for one in verdicts(key, [ours, first])] == [expected[0], None]


def test_the_first_call_of_a_client_is_told_beside_its_later_ones() -> None:
    ours = [taken(seconds, {CALLS: 0.0, JOBS: 1000.0}) for seconds in (1.0, 2.0)]
    reference = taken(1.0, {CALLS: 30.0, JOBS: 10.0}, REFERENCE)
    _, ratio = verdicts("kubernetes_refresh", [*ours, reference])
    assert ratio.found == "100 times (medians); 50 times by the first call of a client"


@pytest.mark.parametrize(
    ("sent", "seen", "met"), [(0.0, 0.0, True), (1.0, 0.0, False), (0.0, 1.0, False)]
)
def test_one_call_in_one_round_is_no_silence(sent: float, seen: float, met: bool) -> None:
    quiet = Sample(0.1, {CALLS: 0.0, AT_SERVER: 0.0})
    samples = [quiet, Sample(0.1, {CALLS: sent, AT_SERVER: seen}), quiet]
    (verdict,) = verdicts("kubernetes_watch", [Measurement(Contender("x", never), samples)])
    assert verdict.met is met


def test_our_first_client_is_compared_with_the_import_of_theirs() -> None:
    imports = [taken(0.1), taken(0.3), taken(0.2, peer=BARE), taken(0.5, peer=BARE)]
    (verdict,) = verdicts("kubernetes_import", imports)
    assert verdict.met is False


@pytest.mark.parametrize("key", ON_A_CLUSTER)
def test_without_a_cluster_nothing_is_claimed(key: str) -> None:
    assert {one.met for one in verdicts(key, [])} == {None}


# -- counting


def test_the_server_counts_what_was_asked_for_and_not_what_was_told() -> None:
    line = 'apiserver_request_total{{code="200",group="",resource="{}",scope="x",verb="{}"}} {}'
    asked = [("pods", "LIST", 3), ("jobs", "GET", 1), ("events", "LIST", 1)]
    other = [("jobs", "WATCH", 7), ("leases", "GET", 50), ("pods", "POST", 9)]
    metrics = "\n".join(["# HELP a counter", *(line.format(*one) for one in [*asked, *other])])
    assert reads_in(metrics) == 5


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The drivers' counter; what it puts in the way goes with the test."""
    original = http.client.HTTPConnection.putrequest
    monkeypatch.setattr(http.client.HTTPConnection, "putrequest", original)
    monkeypatch.syspath_prepend(str(ROOT / "bench" / "drivers"))
    monkeypatch.delitem(sys.modules, "counting", raising=False)
    return importlib.import_module("counting")


def test_watches_are_counted_apart(counting: ModuleType) -> None:
    counter = counting.Counter()
    for target in ("/jobs", "/jobs?watch=true&limit=1", "/pods?limit=5"):
        http.client.HTTPConnection("localhost").putrequest("GET", target)
    assert (counter.requests, counter.watches) == (2, 1)
    assert counting.Counter().requests == 0


# -- everything, once, small


@pytest.fixture
def bed() -> Iterator[Bed]:
    """On the cluster that tests share: nothing is timed here."""
    with shared_cluster(CONTROL_PLANE) as cluster, KubernetesLab(cluster).namespace() as namespace:
        yield Bed(namespace)


@pytest.mark.parametrize("key", ON_A_CLUSTER)
def test_ours_is_measured_without_peers(
    key: str, bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_cases, "kubernetes_bed", lambda: contextlib.nullcontext(bed))
    # The cluster is not ours alone, and others ask it for things.
    monkeypatch.setattr(Bed, "leave_jobs_alone", lambda _: None)
    monkeypatch.setattr(kubernetes_cases, "QUICK_MANY", 3)
    monkeypatch.setattr(kubernetes_cases, "QUICK_QUIET_SECONDS", 2.0)
    with CASES[key](Place(tmp_path, leave_out(PEERS, "not here"), QUICK)) as case:
        found = Result(key, case, measure(case), 0.5)
    assert {one.absent for one in found.absent} <= {"not here"}
    assert found.peers == []
    ours = found.ours[0]
    assert ours.minimum > 0
    assert all(one.facts == ours.facts for one in found.ours), "few jobs are asked about each time"
    if key == "kubernetes_submit":
        assert ours.facts == {CALLS: 1}
    elif key in ("kubernetes_refresh", "kubernetes_distant"):
        assert ours.facts == {CALLS: 2, JOBS: 3}
    elif key == "kubernetes_running":
        assert ours.facts == {CALLS: 1, JOBS: 3}
    else:
        assert (ours.facts[CALLS], ours.facts[JOBS]) == (0, 3)


@pytest.mark.parametrize("key", ON_A_CLUSTER)
def test_without_the_lab_nobody_takes_part(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = Bed(absent="there is no lab")
    monkeypatch.setattr(kubernetes_cases, "kubernetes_bed", lambda: contextlib.nullcontext(absent))
    with CASES[key](Place(tmp_path, leave_out(PEERS, "not here"), QUICK)) as case:
        assert measure(case) == []
    assert case.floor is None
    assert all(one.absent == "there is no lab" for one in case.contenders)
