"""The benchmark harness: fair turns, honest tables, peers that may be missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `bench`

from bench import chart, report
from bench.__main__ import CASES
from bench.driver import Driver
from bench.harness import Case, Contender, Measurement, Result, Sample, measure
from bench.isolation import clean_environment
from bench.peers import OURS, PEERS, Peer, provide
from bench.targets import judge
from bench.text import duration
from bench.verdict import Verdict

DOCUMENT = ROOT / "docs" / "explanation" / "benchmarks.md"


def never() -> Sample:
    raise AssertionError("an absent contender was run")


def taken(name: str, *seconds: float, peer: str = "", **facts: float) -> Measurement:
    return Measurement(Contender(name, never, peer=peer), [Sample(one, facts) for one in seconds])


def result(
    key: str, measurements: Sequence[Measurement], *, floor: bool = True, absent: str = ""
) -> Result:
    first = measurements[0].contender if floor else None
    others = [one.contender for one in (measurements[1:] if floor else measurements)]
    if absent:
        others.append(Contender(absent, never, peer=absent, absent="no network"))
    return Result(key, Case("a case", "What it is.", others, floor=first), measurements, 0.5)


# -- measuring


def test_contenders_take_turns_and_another_one_begins_each_round() -> None:
    log: list[str] = []

    def contender(name: str) -> Contender:
        def run() -> Sample:
            log.append(name)
            return Sample(len(log))

        return Contender(name, run)

    case = Case("case", "", [contender("b"), contender("c")], contender("a"), 3, warm_ups=1)
    found = measure(case)
    assert "".join(log) == "abc" + "abc" + "bca" + "cab"
    assert [one.name for one in found] == ["a", "b", "c"]
    assert [sample.seconds for sample in found[0].samples] == [4, 9, 11]


def test_an_absent_contender_is_not_run() -> None:
    present = Contender("present", lambda: Sample(1.0))
    missing = Contender("missing", never, peer="peer", absent="no network")
    (found,) = measure(Case("case", "", [present, missing], rounds=2))
    assert found.name == "present"


def test_a_measurement_tells_minimum_median_and_the_median_of_its_facts() -> None:
    samples = [Sample(3.0, {"calls": 1}), Sample(1.0, {"calls": 7}), Sample(2.0, {"calls": 4})]
    found = Measurement(Contender("one", never), samples)
    assert (found.minimum, found.median, found.facts) == (1.0, 2.0, {"calls": 4})


# -- reporting

MIXED = result(
    "import",
    [
        taken("bare", 0.010, 0.012),
        taken("import tao_sdk", 0.011, 0.014, calls=2),
        taken("import peer", 0.050, 0.060, peer="peer"),
    ],
    absent="other",
)


def test_the_table_has_everybody_and_says_who_is_missing() -> None:
    rows = report.figures_table([MIXED]).splitlines()[2:]
    assert rows == [
        "| `import` | bare (floor) | 10 ms | 11 ms |  |  |",
        "| `import` | import tao_sdk | 11 ms | 12.5 ms | 1 ms | calls 2 |",
        "| `import` | import peer | 50 ms | 55 ms | 40 ms |  |",
        "| `import` | other | not measured | | | |",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (1.234e-5, "12.3 µs"),
        (0.00099999, "1 ms"),
        (0.0625, "62.5 ms"),
        (1234, "1230 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit_that_suits_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_markdown_explains_what_a_call_includes_and_why_a_peer_is_missing() -> None:
    ours = Contender("ours", never, includes="one commit")
    gone = Contender("theirs", never, peer="peer", absent="no network")
    case = Case("a case", "What it is.", [ours, gone], rounds=2)
    found = Result("submit", case, [Measurement(ours, [Sample(1.0)])], 0.5)
    text = report.as_markdown({"python": "3"}, [], [found])
    assert "* ours: one commit." in text
    assert "* theirs: not measured; no network" in text
    assert "![a case](submit.svg)" in text


# -- targets


def verdict_of(verdicts: Sequence[Verdict], start: str) -> Verdict:
    (found,) = (one for one in verdicts if one.target.startswith(start))
    return found


@pytest.mark.parametrize(("seconds", "met"), [(0.049, True), (0.051, False)])
def test_start_up_is_judged_over_bare_python(seconds: float, met: bool) -> None:
    measured = result("import", [taken("bare", 0.010), taken("import tao_sdk", seconds)])
    assert verdict_of(judge([measured]), "`import tao_sdk` under 40 ms").met is met


def race(ours: Measurement, peer: Measurement) -> Verdict:
    return verdict_of(judge([result("burst", [taken("bare", 0.1), ours, peer])]), "`burst`")


def test_ahead_means_by_minimum_and_by_median() -> None:
    peer = taken("theirs", 2.0, 3.0, 4.0, peer="peer")
    assert race(taken("ours", 1.0, 2.0, 9.0), peer).met is True
    behind = race(taken("ours", 1.0, 3.5, 9.0), peer)
    assert behind.met is False
    assert behind.found == "ours (3.5 s) is behind theirs (3 s)"
    assert race(taken("ours", 2.5, 2.6, 2.7), peer).met is False


def test_every_way_of_ours_must_be_ahead() -> None:
    measured = result(
        "burst",
        [
            taken("bare", 0.1),
            taken("quick", 1.0),
            taken("slow", 5.0),
            taken("theirs", 2.0, peer="peer"),
        ],
    )
    assert verdict_of(judge([measured]), "`burst`").found == "slow (5 s) is behind theirs (2 s)"


def test_without_peers_nothing_is_claimed() -> None:
    measured = [
        result("burst", [taken("bare", 0.1), taken("ours", 1.0)], absent="peer"),
        result("newest", [taken("bare", 0.1), taken("ours", 1.0)], absent="peer"),
    ]
    assert [one.met for one in judge(measured)] == [None, None]


@pytest.mark.parametrize(("seconds", "met"), [(0.050, True), (0.049, False)])
def test_the_newest_jobs_are_judged_by_ratio(seconds: float, met: bool) -> None:
    measured = result(
        "newest",
        [taken("bare", 0.0001), taken("ours", 0.001), taken("theirs", seconds, peer="reference")],
    )
    assert verdict_of(judge([measured]), "`newest`").met is met


# -- charts

SVG = "{http://www.w3.org/2000/svg}"


def bar_widths(text: str) -> list[float]:
    colours = {chart.FLOOR_COLOUR, chart.OUR_COLOUR, chart.PEER_COLOUR}
    found = ElementTree.fromstring(text).iter(f"{SVG}rect")  # noqa: S314 - our own text
    return [float(one.attrib["width"]) for one in found if one.attrib["fill"] in colours]


def words(text: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(text).iter(f"{SVG}text")]  # noqa: S314 - our own text


def test_a_chart_names_everybody_and_draws_longer_bars_for_longer_times() -> None:
    text = chart.bars(MIXED)
    floor, ours, peer = bar_widths(text)
    assert peer / floor == pytest.approx(55 / 11, rel=0.01)
    assert floor < ours < peer <= chart.WIDTH - chart.LABEL_WIDTH - chart.VALUE_WIDTH
    assert {"bare", "import tao_sdk", "import peer", "55 ms", "other", "not measured"} <= set(
        words(text)
    )
    assert "linear scale" in words(text)[1]


def test_large_ratios_get_a_logarithmic_scale() -> None:
    measured = result("submit", [taken("a <b> & c", 0.001), taken("d", 0.01), taken("e", 1.0)])
    text = chart.bars(measured)
    first, second, third = bar_widths(text)
    assert second - first == pytest.approx((third - second) / 2, abs=1.5)
    assert "logarithmic scale" in words(text)[1]
    assert {"1 ms", "10 ms", "100 ms", "1 s", "a <b> & c"} <= set(words(text))


# -- peers


def make_wheel(folder: Path) -> Path:
    wheel = folder / "tiny_peer-1.0-py3-none-any.whl"
    about = "tiny_peer-1.0.dist-info"
    files = {
        "tiny_peer.py": "",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: tiny-peer\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(name, text)
    return wheel


def test_a_peer_is_installed_once_for_the_same_pins_and_reported_when_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # as without a network
    peer = Peer("tiny", str(make_wheel(tmp_path)))
    installed = provide(peer, tmp_path)
    assert not installed.absent
    assert [line for line in installed.packages if line.startswith("tiny-peer")]
    subprocess.run([installed.python, "-I", "-c", "import tiny_peer"], check=True)

    traces = tmp_path / "env-tiny" / "traces"
    traces.touch()
    assert provide(peer, tmp_path) == installed
    assert traces.exists()

    missing = provide(Peer("tiny", "tiny-peer==2.0"), tmp_path)
    assert "tiny-peer==2.0" in missing.absent
    assert not traces.exists()


# -- drivers


@pytest.mark.parametrize("module", ["with_processes", "with_local", "with_virtualenv"])
def test_a_driver_runs_jobs_and_tells_the_moments(module: str, tmp_path: Path) -> None:
    with Driver(OURS, module, tmp_path / "driver") as driver:
        one = driver.ask("one")
        many = driver.ask("many", count=2)
    assert one["until the call returns"] > 0
    assert one["until the program runs"] > 0
    assert 0 < many["submitted"] <= many["seconds"]
    assert many["completed"] == 2


def test_writers_of_one_store_count_what_failed(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    with Driver(OURS, "with_store", tmp_path / "driver") as driver:
        answer = driver.ask("write", path=path, name="writer", count=3)
    assert answer["failed"] == 0
    assert answer["slowest"] > 0


def test_a_driver_that_dies_says_why(tmp_path: Path) -> None:
    with (
        Driver(OURS, "with_nobody", tmp_path / "driver") as driver,
        pytest.raises(RuntimeError, match="No module named 'with_nobody'"),
    ):
        driver.ask("one")


def test_measured_processes_see_nothing_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("ACCESS_KEY", "key")
    seen = clean_environment(tmp_path)
    assert seen["HOME"] == str(tmp_path)
    assert seen["TAO_SDK_STATE_DIR"].startswith(str(tmp_path))
    assert not [name for name in seen if name.startswith("PYTHON") or name == "ACCESS_KEY"]


# -- the command, and the page


def bench(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_without_peers_writes_all_files(tmp_path: Path) -> None:
    done = bench("--no-peers", "cli", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "build" / "bench"
    assert {path.name for path in folder.iterdir()} == {"results.json", "results.md", "cli.svg"}
    document = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert set(document["peers"]) == {peer.name for peer in PEERS}
    (case,) = document["cases"]
    assert [one["name"] for one in case["contenders"]] == ["python -c pass", "tao-sdk --version"]
    assert [one["name"] for one in case["absent"]] == ["torchx --version"]
    assert (folder / "results.md").read_text(encoding="utf-8").strip() in done.stdout


def test_an_unknown_case_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    done = bench("sumbit", cwd=tmp_path)
    assert done.returncode == 2
    assert "no case sumbit; there are import, cli, submit" in done.stderr


def test_the_page_has_the_cases_of_the_harness() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    in_table = re.findall(r"^\| `(\w+)` \| .+ \|.+\|.+\|.*\|.*\|$", text, re.MULTILINE)
    assert list(dict.fromkeys(in_table)) == list(CASES)
    explained = re.findall(r"^\* `(\w+)`", text, re.MULTILINE)
    assert explained == list(CASES)


def test_the_page_names_the_peers_as_they_are_installed() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [peer.requirement for peer in PEERS if f"`{peer.requirement}`" not in text] == []
