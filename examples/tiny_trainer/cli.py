"""The command line: `<action> -e <spec> [section.key=value ...]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from . import actions
from .distributed import Placement
from .errors import InterruptedBySignal, TrainerError
from .spec import Spec, load_spec
from .stopping import StopRequests
from .train import train

ACTIONS = ("train", "evaluate", "export", "inference", "dataset")
_PACKAGED_SPECS = Path(__file__).resolve().parent / "specs"


def main(arguments: list[str]) -> int:
    options = _parser().parse_intermixed_args(arguments)
    outcome = "FAIL"
    try:
        stop = StopRequests()
        path = options.spec or _PACKAGED_SPECS / f"{options.action}.yaml"
        _run(options.action, load_spec(path, options.overrides, options.action), stop)
        outcome = "PASS"
    except (TrainerError, InterruptedBySignal) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        print(f"Execution status: {outcome}", flush=True)
    return 0


def results_folder(spec: Spec, action: str, environment: Mapping[str, str]) -> Path:
    """An absolute `results_dir` as it is; otherwise below the job's results, or ./results."""
    root = environment.get("TAO_RESULTS_ROOT")
    base = Path(root, environment.get("TAO_JOB_ID", "")) if root else Path("results")
    return base / (spec.results_dir or action)


def _run(action: str, spec: Spec, stop: StopRequests) -> None:
    folder = results_folder(spec, action, os.environ)
    if action == "train":
        train(spec, folder, Placement.from_environment(os.environ, spec.train.num_nodes), stop)
    elif action == "evaluate":
        actions.evaluate(spec, folder)
    elif action == "export":
        actions.export(spec, folder)
    elif action == "inference":
        actions.inference(spec, folder)
    else:
        actions.write_data_set(spec, folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tiny_trainer", description="A small trainer that behaves like a TAO container."
    )
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument(
        "-e",
        "--experiment_spec_file",
        dest="spec",
        type=Path,
        metavar="SPEC",
        help="the spec, .yaml or .json (default: the packaged one of the action)",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="put a value over the spec's, as in train.num_epochs=3",
    )
    return parser
