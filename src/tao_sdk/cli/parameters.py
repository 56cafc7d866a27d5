"""Parameter types of our own, as functions from a word to its value."""

from __future__ import annotations

from datetime import timedelta

import click

from tao_sdk.cli.humanise import parse_span


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
