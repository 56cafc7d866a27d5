"""Which credentials are set. Names only: no value is ever looked at, let alone shown."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from tao_sdk import settings
from tao_sdk.cli.checks.findings import Finding, note

_PAIRS = (("ACCESS_KEY", "SECRET_KEY"),)
_OUR_PREFIX = "TAO_"


def check_credentials() -> Iterator[Finding]:
    for setting in settings.SETTINGS.values():
        if setting.secret:
            yield _presence(setting)
    for pair in _PAIRS:
        present = [name for name in pair if settings.lookup(name)]
        if len(present) == 1:
            [absent] = set(pair) - set(present)
            yield note(
                absent,
                f"{present[0]} is set and {absent} is not",
                f"export {absent}, or unset both",
            )


def check_settings() -> Iterator[Finding]:
    """Variables that look like ours and are not: misspelt, most likely."""
    unknown = [
        name
        for name in sorted(settings.process_environment())
        if name.startswith(_OUR_PREFIX) and name not in settings.SETTINGS
    ]
    for name in unknown:
        close = difflib.get_close_matches(name, settings.SETTINGS, n=1)
        hint = f"did you mean {close[0]}?" if close else "nothing of the SDK reads it"
        yield note(name, "is set, and there is no such setting", hint)
    if not unknown:
        yield Finding("variables", f"no unknown {_OUR_PREFIX}* variable is set")


def _presence(setting: settings.Setting) -> Finding:
    environment = settings.process_environment()
    names = (setting.name, *setting.aliases)
    used = next((name for name in names if environment.get(name, "").strip()), None)
    if used is not None:
        return Finding(setting.name, "set" if used == setting.name else f"set, as {used}")
    todo = f"export {setting.name}=…   # {setting.obtain}"
    return note(setting.name, f"not set: {setting.meaning}", todo)
