"""What one invocation works on: the job store, the platforms, and how it speaks."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tao_sdk.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from tao_sdk.job_store import JobStore
    from tao_sdk.platforms.sdk import PlatformSDK


class Place:
    """One job store, and the platforms of its jobs."""

    def __init__(self, state_file: Path | None) -> None:
        self.state_file = None if state_file is None else state_file.absolute()
        self._sdks: dict[str, PlatformSDK] = {}

    @cached_property
    def store(self) -> JobStore:
        from tao_sdk.job_store import JobStore

        return JobStore.for_state_file(self.state_file)

    def sdk(self, platform: str) -> PlatformSDK:
        """The SDK of a platform; raises when there is none of that name."""
        if platform not in self._sdks:
            from tao_sdk.platforms import registry

            self._sdks[platform] = registry.get(platform)(state_file=self.state_file)
        return self._sdks[platform]

    @property
    def options(self) -> list[str]:
        """The words that lead another `tao-sdk` to this place."""
        return [] if self.state_file is None else ["--state", str(self.state_file)]


class Session:
    """One invocation of `tao-sdk`."""

    def __init__(self) -> None:
        self.out = Output()
        self._places: dict[Path | None, Place] = {}
        self._state_file: Path | None = None

    def use_state_file(self, state_file: Path) -> None:
        """Work on this store instead of the default one."""
        self._state_file = state_file

    @property
    def place(self) -> Place:
        """The store that this invocation works on."""
        return self.place_of(self._state_file)

    def place_of(self, state_file: Path | None) -> Place:
        """The store of a state file; the default one for None."""
        key = None if state_file is None else state_file.absolute()
        return self._places.setdefault(key, Place(key))


pass_session = click.make_pass_decorator(Session)


def _turn_on_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    session = context.find_object(Session)
    if value and session is not None:
        session.out.json = True


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`, before or after the name of a command."""
    return click.option(
        "--json",
        is_flag=True,
        # Eager, so that a complaint about any other option is written as JSON, too.
        is_eager=True,
        expose_value=False,
        callback=_turn_on_json,
        help="Print JSON documents, one per line.",
    )(command)
