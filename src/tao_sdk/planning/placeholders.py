"""What the runner has to put into commands and values."""

from __future__ import annotations

import re
from typing import Any

from tao_sdk.planning.spec_paths import texts
from tao_sdk.runner.destinations import SPEC
from tao_sdk.runner.variables import REFERENCE

# `${config_path}` belongs to the shell.
_CONFIG_PATH = re.compile(r"(?<!\$)\{config[_-]path\}")


def mark_config_path(command: str) -> str:
    """The command with the runner's mark for `{config_path}`, and every other brace as it was."""
    return _CONFIG_PATH.sub(SPEC, command)


def env_names(value: Any) -> list[str]:
    """The variables that nested data refers to, in the order of their first use."""
    found = (name for _, text in texts(value) for name in REFERENCE.findall(text))
    return list(dict.fromkeys(found))
