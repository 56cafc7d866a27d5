"""The options that `run` and `plan` share: from words on a command line to a plan."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tao_sdk import settings
from tao_sdk.cli.completions import complete_file, complete_job, complete_platform
from tao_sdk.cli.jobs import find_job
from tao_sdk.cli.session import Session
from tao_sdk.errors import ValidationError
from tao_sdk.plain_data import parse_json
from tao_sdk.platforms import registry
from tao_sdk.platforms.local.sdk import LocalSDK
from tao_sdk.platforms.request import COMMON_OPTIONS, Option

if TYPE_CHECKING:
    from tao_sdk.platforms.backend import Plan
    from tao_sdk.platforms.sdk import PlatformSDK

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class LaunchArguments:
    """What was given on the command line, under the names of the options."""

    platform: str | None
    gpus: int | None
    gpu_ids: str | None
    nodes: int | None
    image: str
    env: tuple[str, ...]
    env_file: tuple[Path, ...]
    cwd: str | None
    network: str | None
    action: str | None
    parent: str | None
    option: tuple[str, ...]
    input_: tuple[str, ...]
    output: tuple[str, ...]
    command: str | None
    words: tuple[str, ...] = field(default=())


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `run` and `plan`, and the command itself."""
    for decorate in reversed(_OPTIONS):
        command = decorate(command)
    return command


_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.option(
        "-p",
        "--platform",
        metavar="NAME",
        shell_complete=complete_platform,
        help="Where to run; default: TAO_PLATFORM, or local.",
    ),
    click.option(
        "--gpus",
        type=int,
        metavar="N",
        help="GPUs per node; 0 is none, -1 all. Default 1; on a local machine without GPUs 0.",
    ),
    click.option("--gpu-ids", metavar="ID,ID", help="Exactly these GPUs, by number or UUID."),
    click.option("--nodes", type=int, metavar="N", help="Number of nodes."),
    click.option("--image", default="", metavar="IMAGE", help="Container image."),
    click.option(
        "-e",
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Environment variable of the job. NAME alone takes the value from your environment: "
        "the way for secrets, since others can read a command line.",
    ),
    click.option(
        "--env-file",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="File with NAME=VALUE lines; make it private (chmod 600).",
    ),
    click.option("--cwd", metavar="FOLDER", help="Working directory of the job."),
    click.option("--network", metavar="NAME", help="The model, for your records."),
    click.option("--action", metavar="NAME", help="train, evaluate, ..., for your records."),
    click.option(
        "--parent",
        metavar="JOB",
        shell_complete=complete_job,
        help="The job that this one builds on.",
    ),
    click.option(
        "-o",
        "--option",
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the platform, e.g. when_busy=refuse; see: tao-sdk platforms.",
    ),
    click.option(
        "--input",
        "input_",
        multiple=True,
        metavar="PATH=URI",
        help="Bring the data at a URI (s3://, hf_model://, hf_dataset://, ngc://, file://) to an "
        "absolute path of the job before the command starts.",
    ),
    click.option(
        "--output",
        multiple=True,
        metavar="PATH[=URI]",
        help="Deliver what the command writes to this absolute path: to the URI, or to where "
        "the job's results go.",
    ),
    click.option("-c", "--command", metavar="TEXT", help="A line for the shell, in one piece."),
    click.argument(
        "words",
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="[--] [CMD ARGS...]",
        shell_complete=complete_file,
    ),
)


def make_plan(session: Session, given: LaunchArguments) -> tuple[PlatformSDK, Plan]:
    """The plan that these arguments mean."""
    command = _command(session, given)
    environment = read_environment(session, given.env, given.env_file)
    sdk = _platform(session, given.platform)
    keywords = _keywords(given, sdk.options)
    if given.parent:
        keywords["parent_job_id"] = find_job(session, given.parent).job_id
    gpus = _default_gpus(session, sdk, keywords) if given.gpus is None else given.gpus
    inputs = read_pairs(given.input_, "--input", "PATH=URI", filled=True)
    shape = "PATH or PATH=URI"
    places = read_pairs(given.output, "--output", shape, bare=True, filled=True)
    outputs = {path: uri or None for path, uri in places.items()}
    plan = sdk.plan(given.image, command, gpus, environment, inputs, outputs, **keywords)
    return sdk, plan


def _platform(session: Session, named: str | None) -> PlatformSDK:
    name = named or settings.get("TAO_PLATFORM")
    try:
        registry.get(name)
    except ValidationError as error:
        source = "--platform" if named else "TAO_PLATFORM"
        raise click.BadParameter(str(error), param_hint=source) from error
    return session.place.sdk(name)


def read_pairs(
    texts: Iterable[str],
    option: str,
    shape: str = "KEY=VALUE",
    *,
    bare: bool = False,
    filled: bool = False,
) -> dict[str, str]:
    """What was given as `KEY=VALUE`, by key.

    `bare` lets a key stand alone; `filled` refuses nothing after the equals sign.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not (separator or bare) or (separator and filled and not value):
            raise click.BadParameter(f"{text!r} is not {shape}", param_hint=option)
        if key in pairs:
            raise click.BadParameter(f"{key} is given twice", param_hint=option)
        pairs[key] = value
    return pairs


def _command(session: Session, given: LaunchArguments) -> str | Sequence[str]:
    if given.command is not None and given.words:
        raise click.UsageError("give the command with --command or as words, not both")
    if given.command is not None:
        return given.command
    if not given.words:
        raise click.UsageError(
            "nothing to run: give a command after --, e.g. tao-sdk run -- python train.py"
        )
    if len(given.words) == 1 and len(given.words[0].split()) > 1:
        session.out.note(
            "these words are taken as the name of one program; a shell line goes after --command"
        )
    return given.words


def _keywords(given: LaunchArguments, platform_options: Iterable[Option]) -> dict[str, Any]:
    known = {option.name: option for option in (*COMMON_OPTIONS, *platform_options)}
    keywords = {
        "gpu_ids": given.gpu_ids,
        "num_nodes": given.nodes,
        "cwd": given.cwd,
        "network_arch": given.network,
        "action": given.action,
    }
    keywords = {name: value for name, value in keywords.items() if value is not None}
    add_options(keywords, given.option, known)
    return keywords


def add_options(
    keywords: dict[str, Any], texts: Iterable[str], known: Mapping[str, Option]
) -> None:
    """Add the values of `--option KEY=VALUE` to the keywords of a job."""
    for name, value in read_pairs(texts, "--option").items():
        if name in keywords:
            raise click.BadParameter(f"{name} is given twice", param_hint="--option")
        keywords[name] = option_value(known.get(name), value)


def option_value(option: Option | None, text: str) -> Any:
    """The value that a text means for an option: itself, or the JSON value it spells.

    The text comes first, so that a name like `123` stays a name; an option that wants a number
    or a list refuses the text, and gets what it spells.
    """
    if option is None:  # `plan` names the unknown keyword and those there are
        return text
    try:
        option.check(option.name, text)
    except ValidationError:
        try:
            return parse_json(text)
        except ValueError:
            return text
    return text


def _default_gpus(session: Session, sdk: PlatformSDK, keywords: Mapping[str, Any]) -> int:
    if not isinstance(sdk, LocalSDK) or keywords.get("gpu_ids"):
        return 1
    from tao_sdk.platforms.gpus.discovery import discover

    there = len(discover())
    session.out.note(
        f"--gpus 1 is assumed (this machine has {there})"
        if there
        else "--gpus 0 is assumed (this machine has none)"
    )
    return 1 if there else 0


def read_environment(
    session: Session, env: Iterable[str], env_files: Iterable[Path]
) -> dict[str, str]:
    """The job's environment variables; --env wins over --env-file, later over earlier.

    Complaints name a variable or a line, never what it holds.
    """
    mine = settings.process_environment()
    values: dict[str, str] = {}
    for path in env_files:
        if path.stat().st_mode & stat.S_IROTH:
            session.out.warn(f"warning: all users can read {path}; run: chmod 600 {path}")
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                values.update(_variable(line.strip(), mine, f"{path} line {number}"))
    for text in env:
        values.update(_variable(text, mine, "--env"))
    return values


def _variable(text: str, mine: Mapping[str, str], where: str) -> dict[str, str]:
    name, separator, value = text.partition("=")
    if not _NAME.fullmatch(name):
        raise click.BadParameter("expected NAME=VALUE or NAME", param_hint=where)
    if separator:
        return {name: value}
    if name not in mine:
        raise click.BadParameter(f"{name} is not set in your environment", param_hint=where)
    return {name: mine[name]}
