"""The helper programs of a bank, as functions: the scripts in a bank only call them.

Data goes to stdout, one line of complaint to stderr. Exit codes: 0; 1 for a bad bank or an unknown
name; 2 for a wrong command line (`resolve_versions_key`: also when there is no `versions.yaml`, be
it for want of a bank).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tao_sdk.errors import TaoError
from tao_sdk.skills.capabilities import capabilities_text, list_capabilities
from tao_sdk.skills.errors import BankNotFoundError
from tao_sdk.skills.image_report import image_report, image_text
from tao_sdk.skills.layout import PACKAGED_BANK, locate_bank
from tao_sdk.skills.listing import automl_support, automl_text, list_models, models_text
from tao_sdk.skills.platform_manifest import (
    describe_platform,
    list_platforms,
    platform_text,
    platforms_text,
)
from tao_sdk.skills.skill_bank import SkillBank
from tao_sdk.versions import (
    KeyNotFoundError,
    ManifestNotFoundError,
    load_manifest,
    resolve_image,
    resolve_wheel,
)

__all__ = [
    "list_automl_support",
    "list_tao_capabilities",
    "list_tao_models",
    "list_tao_platforms",
    "resolve_tao_image",
    "resolve_versions_key",
]

Arguments = Sequence[str] | None


def list_tao_platforms(argv: Arguments = None, *, script: str = "") -> int:
    """List the platforms, or what one of them needs."""
    parser = _parser("list_tao_platforms.py", "List the platforms, or what one of them needs.")
    parser.add_argument("--platform", metavar="NAME", help="name or alias: what it needs")
    asked = parser.parse_args(argv)

    def answer(bank: SkillBank) -> str:
        if asked.platform is None:
            return platforms_text(bank) if asked.format == "text" else _json(list_platforms(bank))
        if asked.format == "text":
            return platform_text(bank, asked.platform)
        return _json(describe_platform(bank, asked.platform))

    return _answer(parser, asked, script, answer)


def list_tao_models(argv: Arguments = None, *, script: str = "") -> int:
    """List the models, or which of them AutoML can tune."""
    parser = _parser("list_tao_models.py", "List the models, or which of them AutoML can tune.")
    parser.add_argument("--scope", choices=("all", "automl"), default="all", help="default: all")
    return _list_models(parser, argv, script)


def list_automl_support(argv: Arguments = None, *, script: str = "") -> int:
    """List the models that AutoML can tune."""
    parser = _parser("list_automl_support.py", "List the models that AutoML can tune.")
    parser.set_defaults(scope="automl")
    return _list_models(parser, argv, script)


def list_tao_capabilities(argv: Arguments = None, *, script: str = "") -> int:
    """List everything that the bank can do."""
    parser = _parser("list_tao_capabilities.py", "List everything that the bank can do.")
    asked = parser.parse_args(argv)

    def answer(bank: SkillBank) -> str:
        return capabilities_text(bank) if asked.format == "text" else _json(list_capabilities(bank))

    return _answer(parser, asked, script, answer)


def resolve_tao_image(argv: Arguments = None, *, script: str = "") -> int:
    """Show the default image of a model's action."""
    parser = _parser("resolve_tao_image.py", "Show the default image of a model's action.")
    parser.add_argument(
        "--model", "--network", required=True, help="folder, network_arch, name or alias"
    )
    parser.add_argument("--action", default="train", help="default: train")
    asked = parser.parse_args(argv)

    def answer(bank: SkillBank) -> str:
        report = image_report(bank, asked.model, asked.action)
        return image_text(report) if asked.format == "text" else _json(report)

    return _answer(parser, asked, script, answer)


def resolve_versions_key(argv: Arguments = None, *, script: str = "") -> int:
    """Print what a key of versions.yaml stands for, and nothing else."""
    parser = argparse.ArgumentParser(
        prog="resolve_versions_key.py",
        description="Print what a key of versions.yaml stands for.",
    )
    parser.add_argument("key", metavar="KEY", help="such as wheels.tao_sdk_slurm")
    _add_bank(parser)
    asked = parser.parse_args(argv)
    try:
        manifest = load_manifest(_bank_folder(asked, script) / "versions.yaml")
        print(_versions_value(asked.key, manifest).strip())
    except (ManifestNotFoundError, BankNotFoundError) as error:
        return _complain(parser, error, 2)
    except TaoError as error:
        return _complain(parser, error, 1)
    return 0


def _versions_value(key: str, manifest: dict[str, Any]) -> str:
    section, _, rest = key.partition(".")
    if section == "images":
        return resolve_image(rest, manifest)
    if section == "wheels":
        return resolve_wheel(rest, manifest)
    raise KeyNotFoundError(f"versions.yaml has no key {key!r}: write images.<key> or wheels.<key>")


def _list_models(parser: argparse.ArgumentParser, argv: Arguments, script: str) -> int:
    asked = parser.parse_args(argv)

    def answer(bank: SkillBank) -> str:
        if asked.scope == "automl":
            return automl_text(bank) if asked.format == "text" else _json(automl_support(bank))
        return models_text(bank) if asked.format == "text" else _json(list_models(bank))

    return _answer(parser, asked, script, answer)


def _parser(program: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=description)
    _add_bank(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    return parser


def _add_bank(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--skill-bank",
        metavar="PATH",
        help="root of the bank; default: TAO_SKILL_BANK_PATH, else ~/tao-skills-external, "
        "else the bank that this program is in",
    )


def _bank_folder(asked: argparse.Namespace, script: str) -> Path:
    own = Path(script).resolve().parents[1] if script else PACKAGED_BANK
    return locate_bank(asked.skill_bank, fallback=own)


def _answer(
    parser: argparse.ArgumentParser,
    asked: argparse.Namespace,
    script: str,
    answer: Callable[[SkillBank], str],
) -> int:
    try:
        text = answer(SkillBank(_bank_folder(asked, script)))
    except TaoError as error:
        return _complain(parser, error, 1)
    print(text)
    return 0


def _complain(parser: argparse.ArgumentParser, error: TaoError, code: int) -> int:
    print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, sort_keys=True)
