"""The manual page, made from the commands themselves: text in, roff out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator

import click

from tao_sdk import settings
from tao_sdk._version import __version__

_UNFILLED = "\b\n"
"""How click marks a paragraph whose lines are to stay as they are."""


def manual_page(root: click.Context) -> str:
    """The page of a group and all its commands."""
    group = root.command
    assert isinstance(group, click.Group)  # noqa: S101 - a programming error, not input
    name = str(root.info_name)
    first, *rest = _paragraphs(group.help)
    lines = [
        f'.TH "{escaped(name.upper())}" "1" "" "{escaped(name)} {__version__}" "User Commands"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(first[0].lower() + first[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        *_synopsis(root),
        ".SH DESCRIPTION",
        *_below_heading(rest),
        ".SH OPTIONS",
        *_options(root, set()),
        ".SH COMMANDS",
    ]
    common = {str(option.name) for option in group.get_params(root)}
    for context in _commands(root):
        words = context.command_path.removeprefix(f"{name} ")
        lines += [f'.SS "{escaped(words)}"', *_synopsis(context)]
        lines += [*_text(_paragraphs(context.command.help)), *_options(context, common)]
        lines += _text(_paragraphs(context.command.epilog))
    lines += [".SH EXIT STATUS", *_below_heading(_paragraphs(group.epilog), titled=False)]
    lines += [".SH ENVIRONMENT", *_environment()]
    return "\n".join(lines)


def _commands(parent: click.Context) -> Iterator[click.Context]:
    """The commands of a group, each followed by those of its own."""
    group = parent.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None  # noqa: S101 - it was listed
        context = click.Context(command, info_name=name, parent=parent)
        yield context
        yield from _commands(context)


def escaped(text: str) -> str:
    """Text that roff prints as it is: hyphens stay hyphens, no line is taken for a request."""
    plain = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    plain = plain.replace("^", "\\(ha").replace("~", "\\(ti").replace('"', "\\(dq")
    return re.sub(r"^(?=[.])", r"\\&", plain, flags=re.MULTILINE)


def _synopsis(context: click.Context) -> Iterator[str]:
    pieces = " ".join(escaped(piece) for piece in context.command.collect_usage_pieces(context))
    yield f"\\fB{escaped(context.command_path)}\\fR {pieces}"


def _paragraphs(text: str | None) -> list[str]:
    return [part for part in inspect.cleandoc(text or "").split("\n\n") if part.strip()]


def _below_heading(paragraphs: list[str], *, titled: bool = True) -> list[str]:
    """A heading begins a paragraph by itself."""
    return list(_text(paragraphs, titled=titled))[1:]


def _text(paragraphs: list[str], *, titled: bool = True) -> Iterator[str]:
    for paragraph in paragraphs:
        yield ".PP"
        if not paragraph.startswith(_UNFILLED):
            yield escaped(" ".join(paragraph.split()))
            continue
        title, *rest = paragraph.removeprefix(_UNFILLED).splitlines()
        if titled:
            yield escaped(title)
        yield from (".nf", *(escaped(line) for line in rest), ".fi")


def _options(context: click.Context, known: Collection[str]) -> Iterator[str]:
    """The options of a command, less those that the group has as well."""
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record and str(parameter.name) not in known:
            names, meaning = record
            yield from (".TP", f"\\fB{escaped(names)}\\fR", escaped(meaning))


def _environment() -> Iterator[str]:
    """The variables that the client reads, without those that it sets for jobs."""
    for setting in settings.SETTINGS.values():
        if not setting.injected or setting.secret:
            default = f" (default: {setting.default})" if setting.default else ""
            meaning = escaped(setting.meaning + default)
            yield from (".TP", f"\\fB{escaped(setting.name)}\\fR", meaning)
