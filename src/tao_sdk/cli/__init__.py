"""The command line `tao-sdk`.

Every command is a module of its own, imported when it is called. What a command prints is decided
in `output`; what its exit code means, in `exit_codes`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tao_sdk._version import __version__
from tao_sdk.cli import exit_codes
from tao_sdk.cli.lazy_group import LazyGroup
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.errors import TaoError

__all__ = ["main"]

PROGRAM = "tao-sdk"

_SUMMARIES = {
    "launch": "Launch an action of a model: asks, checks, launches, reports.",
    "run": "Run a command as a job and follow it.",
    "plan": "Show exactly what run would do; nothing is created.",
    "ls": "List jobs, newest first.",
    "status": "Show what is known about jobs.",
    "explain": "Show why jobs failed and what to do about it.",
    "logs": "Print or follow the log of a job.",
    "wait": "Wait until jobs have ended; the exit code mirrors them.",
    "cancel": "Stop jobs.",
    "watch": "Keep the states of all open jobs current.",
    "pull": "Fetch the results of a job.",
    "rm": "Remove ended jobs and their results.",
    "platforms": "List the platforms and their options.",
    "bank": "Ask the skill bank: models, platforms, images, defaults.",
    "preflight": "Check everything that a launch needs, before anything is made.",
    "doctor": "Check the installation, the state and this machine.",
    "completion": "Print the script that completes commands in your shell.",
    "man": "Print the manual page.",
}

_HELP = """Launch, watch and explain GPU jobs on many platforms.

A JOB is a full id, a unique beginning of one (4 characters or more), "-" for the newest job, or a
tao:// address.
"""


@click.group(
    cls=LazyGroup,
    package=__name__,
    summaries=_SUMMARIES,
    help=_HELP,
    epilog=exit_codes.HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="State file of the job store to use; default: the one in TAO_SDK_STATE_DIR.",
)
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only.")
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@pass_session
@click.pass_context
def _group(context: click.Context, session: Session, state: Path | None, quiet: bool) -> None:
    if state is not None:
        session.use_state_file(state)
    session.out.quiet = quiet
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `tao-sdk` with these arguments (default: those of the process); returns its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    _open_standard_streams()
    # Log lines and file names may hold anything; a character that the terminal lacks is no error.
    # (Typed as TextIO; what Python puts there can be reconfigured.)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # text
    session = Session()
    try:
        return _run(session, words)
    except click.exceptions.Exit as closed:  # the reader of our output went away
        return closed.exit_code


def _open_standard_streams() -> None:
    """Put /dev/null where a stream is closed (`>&-`).

    Otherwise the next file that is opened, such as the job store, would be that stream for every
    program that we start.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115 - stays open


def _run(session: Session, words: list[str]) -> int:
    out = session.out
    try:
        code: Any = _group.main(words, prog_name=PROGRAM, standalone_mode=False, obj=session)
        out.flush()
        return int(code or exit_codes.OK)
    except (click.Abort, KeyboardInterrupt):
        return exit_codes.DETACHED
    except click.ClickException as error:
        out.json = out.json or _asks_for_json(words)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            out.say(f"{error.ctx.get_usage()}\nHelp: {error.ctx.command_path} --help")
        out.error("UsageError", error.format_message(), exit_codes.USAGE)
        return exit_codes.USAGE
    except (TaoError, OSError) as error:
        failed = exit_codes.of_error(error)
        out.error(type(error).__name__, str(error), failed)
        return failed
    except Exception as error:  # noqa: BLE001 - a bug must not pass for the job's own exit code
        import traceback

        out.warn(traceback.format_exc())
        out.error(
            type(error).__name__,
            f"{error} (this is a mistake in the SDK: please report the lines above)",
            exit_codes.SDK_FAILED,
        )
        return exit_codes.SDK_FAILED


def _asks_for_json(words: list[str]) -> bool:
    """When the command line could not be parsed: was --json on it?"""
    ours = words[: words.index("--")] if "--" in words else words
    return "--json" in ours
