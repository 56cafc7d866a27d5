"""The one place that writes: results to stdout, words for people to stderr.

At a terminal, characters that would act on it are shown as escapes.

With `--json` stdout carries JSON documents, one per line, and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import click

from tao_sdk import settings
from tao_sdk.cli import exit_codes
from tao_sdk.secrets import redact
from tao_sdk.visible_text import visible

SCHEMA = "tao-sdk/1"


class Output:
    """How this invocation speaks."""

    def __init__(self) -> None:
        self.json = False
        self.quiet = False

    @property
    def on_terminal(self) -> bool:
        """Tables and colour are for people at a terminal."""
        return not self.json and sys.stdout.isatty()

    @property
    def can_draw(self) -> bool:
        """Whether the terminal can be redrawn."""
        return self.on_terminal and settings.process_environment().get("TERM") != "dumb"

    def line(self, text: str, *, exact: bool = False) -> None:
        """A line of the result; `exact` writes it as it is, also to a terminal."""
        _write(sys.stdout, text + "\n", exact=exact)

    def document(self, kind: str, fields: Mapping[str, Any]) -> None:
        """A JSON document of the result."""
        self.line(json.dumps({"schema": SCHEMA, "kind": kind, **fields}))

    def long_document(self, kind: str, name: str, items: Iterable[Any], **fields: Any) -> None:
        """A JSON document with a list under `name`, of which one item at a time is in memory."""
        before, _, after = json.dumps(
            {"schema": SCHEMA, "kind": kind, name: [], **fields}
        ).rpartition("]")
        _write(sys.stdout, before)
        for number, item in enumerate(items):
            _write(sys.stdout, (", " if number else "") + json.dumps(item))
        self.line("]" + after)

    def flush(self) -> None:
        """Flush, because a reader is waiting."""
        _write(sys.stdout, "", flush=True)

    def draw(self, text: str) -> None:
        """Draw on the terminal, at once. Text of others passes `visible` before."""
        _write(sys.stdout, text, flush=True, exact=True)

    def say(self, text: str, *, exact: bool = False) -> None:
        """A word to the person; --quiet leaves it out."""
        if not self.quiet:
            _write(sys.stderr, text + "\n", exact=exact)

    def note(self, text: str) -> None:
        """Something worth knowing; --quiet leaves it out."""
        self.say(f"note: {text}")

    def warn(self, text: str) -> None:
        """Print a warning; --quiet does not hide it."""
        _write(sys.stderr, f"tao-sdk: {text}\n")

    def error(self, name: str, message: str, exit_code: int) -> None:
        """Why the command failed: a sentence for people and, with --json, a document.

        It may repeat what was typed, so a secret that was typed in a wrong place is left out.
        """
        message = redact(message, settings.known_secrets())
        self.warn(message)
        if self.json:
            self.document("error", {"error": name, "message": message, "exit_code": exit_code})


def _write(stream: TextIO, text: str, *, flush: bool = False, exact: bool = False) -> None:
    """Write; a terminal gets no character that would act on it, a pipe gets every byte."""
    if not exact and stream.isatty():
        text = visible(text)
    try:
        stream.write(text)
        if flush:
            stream.flush()
    except BrokenPipeError:
        # Python flushes the stream once more at its end, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise click.exceptions.Exit(exit_codes.OUTPUT_CLOSED) from None
