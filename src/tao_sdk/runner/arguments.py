"""The command line of args mode; user text is never pasted unquoted."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from .destinations import BUCKET, JOB, WORK
from .errors import RunnerError

# `${name}` belongs to the shell.
_PLACEHOLDER = re.compile(r"""(?P<mark>["']?)(?<!\$)\{(?P<name>[\w.-]+)\}""")
_UNKNOWN = re.compile(f"{WORK}|{BUCKET}|{JOB}")
_IMPOSSIBLE = re.compile(r"[\0\ud800-\udc7f\udd00-\udfff]")
# What comes after these may be executed though it is quoted: here documents, command substitution,
# arithmetic (which evaluates subscripts), tests.
_EVALUATED = re.compile(r"<<|`|\(\(|\[\[|\$\{[^}]*$|[$\w]\[[^]]*$|\blet\b[^\n;|&]*$")
_OPEN_DOCUMENT = re.compile(r"(?<!<)<<-?\s*[\"'\\]?(\w+)\b(?!.*\n\t*\1\n)", re.DOTALL)


def build_args_command(command: str, args: Mapping[str, Any], flags: Sequence[str] = ()) -> str:
    """The command with its arguments.

    `{name}` in the command stands for an argument of that name, hyphens and underscores being
    alike; arguments without a placeholder are appended as `--name 'value'`, then the flags as
    `--flag`. Braces that name no argument stay. Values: text as it is, True and numbers as
    Python prints them, lists and mappings as JSON; an argument that is None is left out.
    """
    given = {name: _checked(name, value) for name, value in args.items() if value is not None}
    text, used = _substitute(command, given)
    words = [
        word
        for name, value in given.items()
        if name not in used
        for word in (_option(name), _appended(value, text, name))
    ]
    options = dict.fromkeys(_option(flag) for flag in flags)
    return " ".join([text, *words, *options])


def argument_text(value: Any) -> str:
    """How an argument is written; see `build_args_command`."""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _checked(name: str, value: Any) -> str:
    # The client tries the command out with paths of which it does not know the beginning.
    text = _UNKNOWN.sub("/results", argument_text(value))
    if _IMPOSSIBLE.search(text):
        raise RunnerError(f"the value of {name} has a NUL or half a character: no command takes it")
    return text


def _option(name: str) -> str:
    if not isinstance(name, str) or not name.strip("-"):
        raise RunnerError(f"{name!r} is not the name of an argument or a flag")
    return shlex.quote(name if name.startswith("-") else f"--{name}")


def _substitute(command: str, values: Mapping[str, str]) -> tuple[str, set[str]]:
    """One pass, so that what was put in is not looked at again. Also the names that were used."""
    pieces: list[str] = []
    used: set[str] = set()
    done = 0
    for match in _PLACEHOLDER.finditer(command):
        known = [name for name in values if same_argument(name, match["name"])]
        if not known:
            continue
        start, end = match.start("name") - 1, match.end()
        wrapped = match["mark"] and command[end : end + 1] == match["mark"]
        if wrapped and _outside_quotes(command[: start - 1]):
            # '{name}' in quotes of its own: ours replace them.
            start, end = start - 1, end + 1
        pieces += [command[done:start], _in_place(values[known[0]], command[:start], known[0])]
        used.update(known)
        done = end
    return "".join([*pieces, command[done:]]), used


def _in_place(value: str, before: str, name: str) -> str:
    quoted = shlex.quote(value)
    # Text without anything special means the same within quotes, here documents, anywhere.
    if quoted != value and not _outside_quotes(before):
        raise RunnerError(
            f"the value of {{{name}}} must be quoted, but the placeholder may already stand "
            "within quotes, a comment, arithmetic, [[ ]] or a here document: put it outside of "
            "them, as a word of its own"
        )
    return quoted


def _appended(value: str, command: str, name: str) -> str:
    """The quoted value, unless it would be read as part of a here document or end a comment."""
    quoted = shlex.quote(value)
    is_text = _OPEN_DOCUMENT.search(command) or ("\n" in value and "#" in command)
    if quoted != value and is_text:
        raise RunnerError(
            f"the value of {name} must be quoted, but the command may end with a comment or a here "
            f"document, where quotes do not count: write {{{name}}} where the value belongs"
        )
    return quoted


def _outside_quotes(before: str) -> bool:
    """Whether a text that follows is certainly not inside quotes; in doubt it may be."""
    if _EVALUATED.search(before):
        return False
    if not set(before) & set("'\"\\"):
        return "#" not in before.rpartition("\n")[2]  # a comment ends with its line
    if any(mark in before for mark in ("$(", "${", "$'", "#")):
        return False
    try:
        shlex.split(before)
    except ValueError:
        return False
    return True


def same_argument(one: str, other: str) -> bool:
    """Command lines write with hyphens what metadata writes with underscores."""
    return one.lstrip("-").replace("-", "_") == other.lstrip("-").replace("-", "_")
