"""What the runner of a job does, before it is packed into a shell command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any


class RunnerPayload:
    """A payload of the runner. It is packed once, when a platform asks for the words to run."""

    def __init__(self, content: Mapping[str, Any], pack: Callable[[], str]) -> None:
        self.content = content
        self._pack = pack

    @cached_property
    def packed(self) -> str:
        """The shell command that carries the runner and this payload."""
        return self._pack()

    @property
    def command(self) -> str:
        """The user's own command."""
        from tao_sdk.runner.destinations import SPEC  # here, because most jobs have no payload

        return str(self.content["command"]).replace(SPEC, "{config_path}")

    @classmethod
    def of_packed(cls, command: str) -> RunnerPayload:
        """The payload of a command that `build_entrypoint` made, which runs unchanged."""
        from tao_sdk.bundle.command import payload_of

        return cls(payload_of(command), lambda: command)
