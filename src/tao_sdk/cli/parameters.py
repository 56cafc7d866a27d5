"""Our own parameter types: functions from a word to its value, or to a complaint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from tao_sdk.cli.humanise import parse_span
from tao_sdk.errors import UnsupportedError, ValidationError


def time_span(text: str) -> timedelta:
    """`90`, `90s`, `5m`, `2h`; a bare number is seconds."""
    return _checked(text, parse_span(text))


def age(text: str) -> timedelta:
    """`30d`, `12h`: with its unit, because a forgotten one would do harm."""
    return _checked(text, parse_span(text, unit_required=True))


def _checked(text: str, span: timedelta | None) -> timedelta:
    if span is None:
        raise click.BadParameter(f"{text!r} is not a time such as 90s, 5m, 2h or 30d")
    return span


def bank_folder(text: str) -> Path:
    """The root of a skill bank that is there."""
    from tao_sdk.skills.errors import BankNotFoundError
    from tao_sdk.skills.layout import layout_of, locate_bank

    try:
        root = locate_bank(text)
        layout_of(root)
    except BankNotFoundError as error:
        raise click.BadParameter(f"{error}; tao-sdk bank path shows the one that is used") from None
    return root


def bank_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--bank`."""
    return click.option(
        "--bank",
        type=bank_folder,
        metavar="DIR",
        help="Root of the bank; default: TAO_SKILL_BANK_PATH, ~/tao-skills-external, the packaged.",
    )(command)


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Within the block, an impossible request is an error of the command line.

    A wrong file of the bank is not: another command line would not help.
    """
    from tao_sdk.skills.errors import MetadataError, MissingNameError

    try:
        yield
    except MetadataError:
        raise
    except (ValidationError, UnsupportedError, MissingNameError) as error:
        raise click.UsageError(str(error)) from error
