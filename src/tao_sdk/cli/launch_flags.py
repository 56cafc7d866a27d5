"""The flags of `tao-sdk launch`: from words to a launch plan, and back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tao_sdk import settings
from tao_sdk.cli.completions import complete_platform
from tao_sdk.cli.launch_options import add_options, read_environment, read_pairs
from tao_sdk.cli.parameters import bank_option
from tao_sdk.cli.session import Session
from tao_sdk.launch import LaunchPlan
from tao_sdk.launch.automl import POLICIES
from tao_sdk.launch.facts import DOCKER, LOCAL
from tao_sdk.plain_data import parse_json
from tao_sdk.platforms import registry
from tao_sdk.platforms.request import COMMON_OPTIONS
from tao_sdk.runner.uris import scheme_of
from tao_sdk.skills.names import choices_for

_ROOTS = ("train_root", "eval_root", "calibration_root")


@dataclass(frozen=True)
class LaunchFlags:
    """What was given on the command line, under the names of the options."""

    model: str
    action: str
    platform: str | None
    train_root: tuple[str, ...]
    eval_root: tuple[str, ...]
    calibration_root: tuple[str, ...]
    root: tuple[str, ...]
    set_: tuple[str, ...]
    file_name: tuple[str, ...]
    checkpoint: str
    resume: str
    pretrained: str
    image: str | None
    confirm_image: bool
    gpus: int | None
    nodes: int | None
    monitor: bool | None
    status_interval: float | None
    automl: str
    results: str
    env: tuple[str, ...]
    env_file: tuple[Path, ...]
    option: tuple[str, ...]
    json_required_field: tuple[str, ...]
    confirm_mounts: bool
    deploy: bool
    variant: str | None
    bank: Path | None


def launch_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that make up a plan."""
    for decorate in reversed(_FLAGS):
        command = decorate(command)
    return command


def _root_flag(name: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{name}", multiple=True, metavar="PATH", help=what)


_FLAGS = (
    click.argument("model", required=False),
    click.argument("action", default="train"),
    click.option(
        "-p", "--platform", metavar="NAME", shell_complete=complete_platform, help="Where to run."
    ),
    _root_flag("train-root", "Folder or s3:// address of the training data; may be repeated."),
    _root_flag("eval-root", "The same for the data to evaluate on."),
    _root_flag("calibration-root", "The same for the data to calibrate with."),
    click.option("--root", multiple=True, metavar="NAME=PATH", help="Any other root of an action."),
    click.option(
        "--set",
        "set_",
        multiple=True,
        metavar="KEY=VALUE",
        help="A value of the spec, by dotted key or short name: exact paths, and everything else.",
    ),
    click.option(
        "--file-name", multiple=True, metavar="NAME=FILE", help="A file name the model leaves open."
    ),
    click.option(
        "--checkpoint", default="", metavar="PATH", help="The model to evaluate, export or prune."
    ),
    click.option("--resume", default="", metavar="PATH", help="The checkpoint to go on from."),
    click.option("--pretrained", default="", metavar="PATH", help="The model to start from."),
    click.option("--image", metavar="IMAGE", help="An image instead of the default one."),
    click.option("--confirm-image", is_flag=True, help="Take the default image that was shown."),
    click.option("--gpus", type=int, metavar="N", help="GPUs per node; 0 is none."),
    click.option("--nodes", type=int, metavar="N", help="Number of nodes."),
    click.option(
        "--monitor/--no-monitor", default=None, help="Report until the job has ended, or do not."
    ),
    click.option(
        "--status-interval", type=float, metavar="MINUTES", help="Time between two reports."
    ),
    click.option(
        "--automl",
        type=click.Choice(POLICIES),
        default="auto",
        show_default=True,
        help="Whether AutoML tunes a training.",
    ),
    click.option("--results", default="", metavar="PLACE", help="Where results go: path or URI."),
    click.option(
        "-e",
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Environment variable of the job; NAME alone takes your value, the way for secrets.",
    ),
    click.option(
        "--env-file",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="File with NAME=VALUE lines.",
    ),
    click.option(
        "-o", "--option", multiple=True, metavar="KEY=VALUE", help="An option of the platform."
    ),
    click.option(
        "--json-required-field",
        multiple=True,
        metavar="KEY=FIELD[,FIELD]",
        help="Fields that every record of the file at a spec key must have.",
    ),
    click.option(
        "--confirm-mounts",
        is_flag=True,
        help="You have seen that paths of a remote platform are mounted into its jobs.",
    ),
    click.option("--deploy", is_flag=True, help="The TensorRT form of the action."),
    click.option("--variant", metavar="NAME", help="The template to use where there are several."),
    bank_option,
)


def make_launch_plan(session: Session, given: LaunchFlags) -> LaunchPlan:
    """The plan that these flags mean."""
    plan = LaunchPlan(
        given.model,
        given.action,
        platform=given.platform or "",
        train_root=_one_or_many(given.train_root),
        eval_root=_one_or_many(given.eval_root),
        calibration_root=_one_or_many(given.calibration_root),
        roots=read_pairs(given.root, "--root"),
        specs={key: _value(text) for key, text in read_pairs(given.set_, "--set").items()},
        file_names=read_pairs(given.file_name, "--file-name"),
        parent=given.checkpoint,
        resume=given.resume,
        pretrained=given.pretrained,
        image=given.image,
        image_confirmed=given.confirm_image,
        gpus=given.gpus,
        nodes=given.nodes,
        monitor=given.monitor,
        status_interval_minutes=given.status_interval,
        automl=given.automl,
        results=given.results,
        env_vars=read_environment(session, given.env, given.env_file),
        required_fields={
            key: tuple(text.split(","))
            for key, text in read_pairs(given.json_required_field, "--json-required-field").items()
        },
        confirmed_mounts=given.confirm_mounts,
        deploy=given.deploy,
        variant=given.variant,
        bank=given.bank,
    )
    return with_options(session, with_absolute_places(plan), given.option)


def with_absolute_places(plan: LaunchPlan) -> LaunchPlan:
    """A path typed in a shell of this machine is relative to its folder, if jobs run here."""
    if not plan.platform or plan.facts.backend_type not in (LOCAL, DOCKER):
        return plan
    roots = {name: _absolute(value) for name, value in plan.given_roots().items()}
    named = {name: roots.pop(name) for name in _ROOTS if name in roots}
    places = {"parent": plan.parent, "resume": plan.resume, "results": plan.results}
    places = {name: str(_absolute(path)) for name, path in places.items() if path}
    return plan.set(**named, **places, roots=roots)


def with_options(session: Session, plan: LaunchPlan, texts: Sequence[str]) -> LaunchPlan:
    """Options are read by the platform's own table, so the platform must be known."""
    if not texts:
        return plan
    if not plan.platform:
        raise click.UsageError("--option needs --platform, whose option it is")
    return plan.set(options=read_options(session, plan.facts.platform_name, texts))


def read_options(session: Session, platform: str, texts: Sequence[str]) -> dict[str, Any]:
    """The keywords given as `--option KEY=VALUE`; the platform checks them."""
    platform = registry.canonical(platform)
    known = {one.name: one for one in (*COMMON_OPTIONS, *session.place.sdk(platform).options)}
    keywords: dict[str, Any] = {}
    add_options(keywords, texts, known)
    for name, value in keywords.items():
        if name not in known:
            there = choices_for(name, known)
            raise click.BadParameter(f"{platform} has no {name!r}: {there}", param_hint="--option")
        known[name].check(name, value)
    return keywords


def command_line(session: Session, plan: LaunchPlan) -> str:
    """The command line that continues from this plan."""
    words = ["tao-sdk", *session.place.options, "launch", plan.model, plan.action, *_words(plan)]
    return shlex.join(words)


def _words(plan: LaunchPlan) -> Iterator[str]:
    for flag, value in (
        ("--platform", plan.platform),
        ("--checkpoint", plan.parent),
        ("--resume", plan.resume),
        ("--pretrained", plan.pretrained),
        ("--image", plan.image),
        ("--gpus", plan.gpus),
        ("--nodes", plan.nodes),
        ("--status-interval", plan.status_interval_minutes),
        ("--automl", plan.automl if plan.automl != "auto" else ""),
        ("--results", plan.results),
        ("--variant", plan.variant),
        ("--bank", plan.bank if isinstance(plan.bank, (str, Path)) else ""),
    ):
        if value not in (None, ""):
            yield from (flag, f"{value:g}" if isinstance(value, float) else str(value))
    for name, roots in plan.given_roots().items():
        for root in [roots] if isinstance(roots, str) else roots:
            is_named = name in _ROOTS
            yield from (
                (f"--{name.replace('_', '-')}", root) if is_named else ("--root", f"{name}={root}")
            )
    for flag, pairs in (
        ("--set", {key: _text(value) for key, value in plan.specs.items()}),
        ("--file-name", dict(plan.file_names)),
        ("--json-required-field", {k: ",".join(v) for k, v in plan.required_fields.items()}),
        ("--option", {key: _text(value) for key, value in plan.options.items()}),
    ):
        for key, text in pairs.items():
            yield from (flag, f"{key}={text}")
    for name in plan.env_vars:
        yield from ("--env", name)
    for flag, is_on in (
        ("--confirm-image", plan.image_confirmed),
        ("--confirm-mounts", plan.confirmed_mounts),
        ("--deploy", plan.deploy),
        ("--monitor", plan.monitor is True),
        ("--no-monitor", plan.monitor is False),
    ):
        if is_on:
            yield flag


def _value(text: str) -> Any:
    """The JSON value that a text spells, else the text."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _one_or_many(roots: tuple[str, ...]) -> str | tuple[str, ...]:
    return "".join(roots) if len(roots) < 2 else roots


def _absolute(roots: str | Sequence[str]) -> str | Sequence[str]:
    if isinstance(roots, str):
        return roots if scheme_of(roots) else str(settings.expanded(roots).absolute())
    return tuple(str(_absolute(root)) for root in roots)
