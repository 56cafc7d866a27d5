"""A command group that imports a command only when it is called.

The help of the group comes from a table, so that neither `--help` nor `--version` pays for (or
depends on) the code of the commands.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Finds the command `name` as the attribute `command` of the module `<package>.<name>`."""

    def __init__(self, *args: Any, package: str, summaries: Mapping[str, str], **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._package = package
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._summaries:
            close = difflib.get_close_matches(cmd_name, self._summaries, n=1)
            if not close or ctx.resilient_parsing or cmd_name.startswith("-"):
                return None
            raise click.UsageError(f"no command {cmd_name!r}; did you mean {close[0]!r}?", ctx)
        command = importlib.import_module(f"{self._package}.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101 - a programming error, not input
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = (name for name in self._summaries if name.startswith(incomplete))
        offered = [CompletionItem(name, help=self._summaries[name]) for name in names]
        # Not click's way for groups, which would import every command.
        return offered + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries.items()))
