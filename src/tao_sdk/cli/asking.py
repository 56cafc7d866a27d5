"""Questions at a terminal: asked on stderr, repeated until the answer will do."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import click

from tao_sdk import settings
from tao_sdk.errors import TaoError, ValidationError
from tao_sdk.launch.prompt import fitted
from tao_sdk.visible_text import visible

_Answer = TypeVar("_Answer")
_ENTRY = 20
_WIDEST = 110


class StoppedError(Exception):
    """The person ended the questions (Ctrl-C, Ctrl-D)."""


def ask(label: str, accept: Callable[[str], _Answer], default: str | None = None) -> _Answer:
    """Ask until `accept` returns a value for the answer; its errors are shown.

    Without a default an answer must be given; "" is a default that is not shown.
    """
    while True:
        try:
            shown = f"{label} [{default}]" if default else label
            answer = click.prompt(visible(shown), default, err=True, show_default=False)
        except click.Abort:
            _stop()
        try:
            return accept(str(answer).strip())
        except TaoError as error:
            tell(f"  {error}")


def ask_yes(label: str, *, default: bool) -> bool:
    """A question that is answered by yes or no."""
    try:
        return click.confirm(visible(label), default=default, err=True)
    except click.Abort:
        _stop()


def _stop() -> NoReturn:
    click.echo(err=True)  # ends the line of the question
    raise StoppedError


def numbered(names: Sequence[str]) -> Callable[[str], str]:
    """Lets an answer be a number of a list; other answers stay as they are."""

    def accept(answer: str) -> str:
        if not answer.isdecimal():
            return answer
        if not 1 <= (position := whole_number(answer)) <= len(names):
            raise ValidationError(f"{answer} is not a number from 1 to {len(names)}")
        return names[position - 1]

    return accept


def whole_number(answer: str) -> int:
    try:
        return int(answer)
    except ValueError:
        raise ValidationError(f"{answer!r} is not a whole number") from None


def number(answer: str) -> float:
    try:
        return float(answer)
    except ValueError:
        raise ValidationError(f"{answer!r} is not a number") from None


def heading(title: str, step: str = "") -> None:
    """The beginning of a part of the questions."""
    click.echo(
        f"\n{styled(title, bold=True)}{styled(f'  ({step})', dim=True) if step else ''}", err=True
    )


def entry(position: int, name: str, description: str) -> None:
    """A line of a numbered list; continued lines of the description are indented."""
    begin = f"  {position:>2}  {name:<{_ENTRY}}"
    click.echo(visible(hanging(begin, description)), err=True)


def tell(text: str = "") -> None:
    """A line for the person, fitted to the terminal."""
    tell_exactly(fitted(text, screen_width()))


def tell_exactly(text: str) -> None:
    """Lines for the person, not wrapped."""
    click.echo(visible(text), err=True)


def styled(text: str, **style: Any) -> str:
    """Text in a style at a terminal; plain elsewhere."""
    plain = not sys.stderr.isatty() or settings.process_environment().get("NO_COLOR")
    return text if plain else click.style(visible(text), **style)


def screen_width() -> int:
    """The width that text is fitted to."""
    return max(40, min(_WIDEST, shutil.get_terminal_size().columns))


def hanging(begin: str, text: str, indent: int | None = None) -> str:
    """`begin` and `text` as one paragraph: at a terminal wrapped and indented below itself."""
    if " " not in text.strip() or not sys.stderr.isatty():
        return f"{begin}{text}".rstrip()
    return textwrap.fill(
        text,
        screen_width(),
        initial_indent=begin,
        subsequent_indent=" " * (len(begin) if indent is None else indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
