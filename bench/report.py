"""Results as JSON, for programs, and as Markdown and charts, for people."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import chart
from bench.harness import Measurement, Result
from bench.peers import Environment
from bench.targets import judge
from bench.text import duration
from bench.transfer_cases import limits
from bench.verdict import Verdict


def machine() -> dict[str, Any]:
    """Where and when the figures were taken, and of what."""
    return {
        "taken at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "-s") else ""),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "files in": tempfile.gettempdir(),
        "load before": round(os.getloadavg()[0], 2),
    }


def write(
    folder: Path,
    facts: Mapping[str, Any],
    peers: Mapping[str, Environment],
    results: Sequence[Result],
) -> str:
    """Write everything; returns the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    verdicts = judge(results)
    document = {
        "machine": facts,
        "peers": {name: _peer_as_json(environment) for name, environment in peers.items()},
        "targets": [asdict(verdict) for verdict in verdicts],
        "cases": [_result_as_json(result) for result in results],
    }
    (folder / "results.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    for result in filter(lambda result: result.measurements, results):
        (folder / f"{result.key}.svg").write_text(chart.bars(result), encoding="utf-8")
    text = as_markdown(facts, verdicts, results)
    (folder / "results.md").write_text(text, encoding="utf-8")
    return text


def as_markdown(
    facts: Mapping[str, Any], verdicts: Sequence[Verdict], results: Sequence[Result]
) -> str:
    """Targets, one table of all figures, and what each of them means."""
    parts = [
        "# Measurements",
        ", ".join(f"{name} {value}" for name, value in facts.items()),
        "## Targets",
        _targets_table(verdicts),
        "## Figures",
        figures_table(results),
        "## What was measured",
        *(_explanation(result) for result in results),
    ]
    return "\n\n".join(parts) + "\n"


def figures_table(results: Sequence[Result]) -> str:
    """All contenders of all cases; a case's floor is its first row."""
    lines = [
        "| case | | min | median | min over floor | counted |",
        "|---|---|--:|--:|--:|---|",
    ]
    for result in results:
        lines += [_row(result, one) for one in result.measurements]
        lines += [f"| `{result.key}` | {one.name} | not measured | | | |" for one in result.absent]
    return "\n".join(lines)


def _row(result: Result, one: Measurement) -> str:
    is_floor = one is result.floor
    name = f"{one.name} (floor)" if is_floor else one.name
    above = "" if result.floor is None or is_floor else _difference(one, result.floor)
    counted = ", ".join(f"{fact} {_number(value)}" for fact, value in one.facts.items())
    times = f"{duration(one.minimum)} | {duration(one.median)}"
    return f"| `{result.key}` | {name} | {times} | {above} | {counted} |"


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.4g}"


def _difference(one: Measurement, floor: Measurement) -> str:
    over = one.minimum - floor.minimum
    return duration(over) if over >= 0 else "below it"


def _targets_table(verdicts: Sequence[Verdict]) -> str:
    words = {True: "met", False: "**not met**", None: "not judged"}
    lines = ["| target | | found |", "|---|---|---|"]
    lines += [f"| {one.target} | {words[one.met]} | {one.found} |" for one in verdicts]
    return "\n".join(lines)


def _explanation(result: Result) -> str:
    case = result.case
    rounds = f"{case.rounds} round{'s' if case.rounds > 1 else ''}, interleaved"
    lines = [
        f"### `{result.key}`: {case.name}",
        "",
        f"{case.what} {rounds}; load before it {result.load_before:.2f}.",
    ]
    notes = [f"* {one.name}: {one.includes}." for one in case.taking_part if one.includes]
    notes += [f"* {line}." for line in limits(result)]
    notes += [f"* {one.name}: not measured; {one.absent}" for one in result.absent]
    if notes:
        lines += ["", *notes]
    if result.measurements:
        lines += ["", f"![{case.name}]({result.key}.svg)"]
    return "\n".join(lines)


def _peer_as_json(environment: Environment) -> dict[str, Any]:
    return {"packages": environment.packages, "absent": environment.absent}


def _result_as_json(result: Result) -> dict[str, Any]:
    case = result.case
    return {
        "key": result.key,
        "name": case.name,
        "what": case.what,
        "rounds": case.rounds,
        "load_before": result.load_before,
        "floor": case.floor.name if case.floor else None,
        "contenders": [
            {
                "name": one.name,
                "peer": one.contender.peer,
                "includes": one.contender.includes,
                "min_seconds": one.minimum,
                "median_seconds": one.median,
                "facts": one.facts,
                "samples_seconds": [sample.seconds for sample in one.samples],
            }
            for one in result.measurements
        ],
        "absent": [
            {"name": one.name, "peer": one.peer, "why": one.absent} for one in result.absent
        ],
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()
