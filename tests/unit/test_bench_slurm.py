"""The SLURM part of the benchmarks: what is judged, what is counted, and one small run of all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `bench`

from bench import slurm_cases
from bench.__main__ import CASES, SLURM
from bench.harness import Case, Contender, Measurement, Result, Sample, measure
from bench.peers import PEERS, leave_out
from bench.place import QUICK, Place
from bench.slurm_bed import PROCESSES, ROUND_TRIPS, Bed
from bench.slurm_cases import CANCELED, JOBS
from bench.slurm_targets import judge_slurm
from bench.verdict import Verdict

from lab.slurm import shared_cluster, slurm_lab


def never() -> Sample:
    raise AssertionError("nothing is run here")


def taken(
    name: str, seconds: float, facts: Mapping[str, float] | None = None, peer: str = ""
) -> Measurement:
    return Measurement(Contender(name, never, peer=peer), [Sample(seconds, facts or {})])


def verdicts(key: str, measurements: Sequence[Measurement]) -> list[Verdict]:
    case = Case("a case", "", [one.contender for one in measurements])
    return judge_slurm({key: Result(key, case, measurements, 0.5)})


# -- targets


def test_every_way_to_submit_may_take_two_round_trips() -> None:
    target = "`slurm_submit`: at most 2 round trips"
    ways = [taken("again", 0.1, {ROUND_TRIPS: 2.0}), taken("first", 0.3, {ROUND_TRIPS: 3.0})]
    peer = taken("theirs", 3.0, {ROUND_TRIPS: 13.0}, "reference")
    assert verdicts("slurm_submit", [*ways, peer]) == [
        Verdict(target, "2 with again", True),
        Verdict(target, "3 with first", False),
    ]


def test_a_refresh_takes_one_round_trip_and_is_compared_with_everybody_by_the_job() -> None:
    trips, slow, quick = verdicts(
        "slurm_refresh",
        [
            taken("ours", 0.5, {ROUND_TRIPS: 1.0, JOBS: 1000.0}),
            taken("theirs", 1.0, {JOBS: 10.0}, "reference"),
            taken("bare", 0.49, {JOBS: 10.0}, "ssh"),
        ],
    )
    assert trips.met is True
    assert (slow.found, slow.met) == ("200 times theirs (medians, by job)", True)
    assert (quick.found, quick.met) == ("98 times bare (medians, by job)", False)


@pytest.mark.parametrize(("seconds", "met"), [(0.99, True), (1.01, False)])
def test_a_cancellation_takes_less_than_a_second(seconds: float, met: bool) -> None:
    (verdict,) = verdicts("slurm_cancel", [taken("ours", seconds)])
    assert verdict.met is met


@pytest.mark.parametrize("key", SLURM)
def test_without_a_cluster_nothing_is_claimed(key: str) -> None:
    assert {one.met for one in verdicts(key, [])} == {None}


# -- everything, once, small


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """On the cluster that tests share: nothing is timed here."""
    with shared_cluster() as cluster, slurm_lab(cluster) as lab:
        yield Bed(tmp_path, lab)


def test_round_trips_and_processes_are_counted_apart(bed: Bed) -> None:
    client = bed.client("anybody")
    host = client.variables["SLURM_HOSTNAME"].split(",")[0]

    def work() -> float:
        for words in (["ssh", host, "true"], ["ssh", "-V"]):
            subprocess.run(words, env=client.variables, capture_output=True, check=True)
        return 1.5

    assert client.counted(work) == Sample(1.5, {ROUND_TRIPS: 1, PROCESSES: 2})
    assert bed.client("somebody").counted(lambda: 2.5).facts == {ROUND_TRIPS: 0, PROCESSES: 0}


@pytest.mark.parametrize("key", SLURM)
def test_ours_and_bare_ssh_are_measured_without_peers(
    key: str, bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_cases, "slurm_bed", lambda _: contextlib.nullcontext(bed))
    monkeypatch.setattr(slurm_cases, "QUICK_MANY", 3)
    with CASES[key](Place(tmp_path, leave_out(PEERS, "not here"), QUICK)) as case:
        found = Result(key, case, measure(case), 0.5)
    assert found.floor is not None
    assert all(one.minimum > 0 for one in found.measurements)
    assert {one.absent for one in found.absent} == {"not here"}
    ours, *first_of_process = found.ours
    if key == "slurm_submit":
        assert ours.facts == {ROUND_TRIPS: 1, PROCESSES: 1}
        assert [one.facts[ROUND_TRIPS] > 1 for one in first_of_process] == [True]
    elif key == "slurm_refresh":
        assert ours.facts == {ROUND_TRIPS: 1, PROCESSES: 1, JOBS: 3}
        assert [one.facts for one in found.peers] == [{JOBS: 2}] * 2
    else:
        assert ours.facts[CANCELED] == 1


@pytest.mark.parametrize("key", SLURM)
def test_without_the_lab_nobody_takes_part(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAO_LAB_REQUIRE", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # a cluster of one's own needs root
    with CASES[key](Place(tmp_path, leave_out(PEERS, "not here"), QUICK)) as case:
        assert measure(case) == []
    assert case.floor is None
    assert all("needs root" in one.absent for one in case.contenders)
