"""`tao-sdk platforms`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import click

from tao_sdk import settings
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.errors import TaoError
from tao_sdk.platforms import registry
from tao_sdk.platforms.protocol import ArtifactCleanupSDK, PythonScriptSDK
from tao_sdk.platforms.request import COMMON_OPTIONS, Option, as_json

_CAPABILITIES: dict[str, Any] = {
    "python scripts": PythonScriptSDK,
    "artifact cleanup": ArtifactCleanupSDK,
}


@dataclass(frozen=True)
class Platform:
    """Facts about a platform that need no contact with it."""

    name: str
    default: bool
    usable: bool
    problem: str = ""
    class_name: str = ""
    capabilities: list[str] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)


@click.command(
    epilog=examples(
        ("tao-sdk platforms", "all, with options"),
        ("tao-sdk platforms --json | jq -r '.platforms[].name'", "their names"),
    )
)
@json_option
@pass_session
def command(session: Session) -> None:
    """List the platforms and their options.

    Nothing is contacted. The options are keywords of create_job and go after --option on the
    command line.
    """
    found = [_describe(session, name) for name in registry.names()]
    common = [_option(option) for option in COMMON_OPTIONS]
    if session.out.json:
        fields = {"platforms": [asdict(platform) for platform in found], "common_options": common}
        session.out.document("platforms", fields)
        return
    for platform in found:
        _show(session, platform)
    session.out.line("on every platform")
    _show_options(session, common)


def _describe(session: Session, name: str) -> Platform:
    default = name == settings.get("TAO_PLATFORM")
    try:
        sdk = session.place.sdk(name)
        options = [_option(option) for option in sdk.options]
    except TaoError as error:
        return Platform(name, default, usable=False, problem=str(error))
    kind = type(sdk)
    return Platform(
        name,
        default,
        usable=True,
        class_name=f"{kind.__module__}.{kind.__qualname__}",
        capabilities=[
            what for what, protocol in _CAPABILITIES.items() if issubclass(kind, protocol)
        ],
        options=options,
    )


def _option(option: Option) -> dict[str, Any]:
    return {"name": option.name, "meaning": option.meaning, "default": as_json(option.default)}


def _show(session: Session, platform: Platform) -> None:
    default = "  (default)" if platform.default else ""
    session.out.line(f"{platform.name}{default}  {platform.class_name or platform.problem}")
    if platform.capabilities:
        session.out.line(f"  can: {', '.join(platform.capabilities)}")
    _show_options(session, platform.options)
    session.out.line("")


def _show_options(session: Session, options: list[dict[str, Any]]) -> None:
    width = max((len(option["name"]) for option in options), default=0)
    for option in options:
        default = f" [{option['default']}]" if option["default"] else ""
        session.out.line(f"  {option['name']:<{width}}  {option['meaning']}{default}")
