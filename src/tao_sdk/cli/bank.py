"""`tao-sdk bank`: the skill bank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tao_sdk import settings
from tao_sdk.cli import exit_codes
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.parameters import bank_folder, bank_option, usage_errors
from tao_sdk.cli.session import Session, json_option, pass_session

if TYPE_CHECKING:
    from tao_sdk.skills import SkillAction, SkillBank

_WHAT = ("models", "platforms", "automl", "capabilities")
_FOLDER = click.Path(path_type=Path)


@click.group(
    epilog=examples(
        ("tao-sdk bank list", "the models"),
        ("tao-sdk bank show dino train", "what a job of it needs"),
        ("tao-sdk bank install", "a copy of your own, in ~/tao-skills-external"),
        ("tao-sdk bank check ~/my-bank", "is it sound?"),
    )
)
@json_option
def command() -> None:
    """Ask the skill bank: models, platforms, images, defaults."""


@command.command("path")
@bank_option
@json_option
@pass_session
def path_command(session: Session, bank: Path | None) -> None:
    """Print the root of the bank that is used."""
    found = _open(bank)
    if session.out.json:
        session.out.document("bank", {"path": str(found.path), "layout": found.layout})
    else:
        session.out.line(str(found.path))


@command.command("install")
@click.argument("folder", metavar="[DIR]", type=_FOLDER, required=False)
@json_option
@pass_session
def install_command(session: Session, folder: Path | None) -> None:
    """Copy the packaged bank to DIR (default: ~/tao-skills-external)."""
    from tao_sdk.skills.installation import install_bank

    usual = settings.SETTINGS["TAO_SKILL_BANK_PATH"].default
    made = install_bank(settings.expanded(folder or usual).absolute())
    if session.out.json:
        session.out.document("bank", {"path": str(made)})
    else:
        session.out.line(str(made))
    if folder is not None:
        session.out.note(f"to use it: export TAO_SKILL_BANK_PATH={made}")


@command.command("list")
@click.argument("what", type=click.Choice(_WHAT), default="models")
@bank_option
@json_option
@pass_session
def list_command(session: Session, what: str, bank: Path | None) -> None:
    """List models, platforms, what AutoML can tune, or everything."""
    from tao_sdk.skills.capabilities import capabilities_text, list_capabilities
    from tao_sdk.skills.listing import automl_support, automl_text, list_models, models_text
    from tao_sdk.skills.platform_manifest import list_platforms, platforms_text

    as_text, as_data = {
        "models": (models_text, list_models),
        "platforms": (platforms_text, list_platforms),
        "automl": (automl_text, automl_support),
        "capabilities": (capabilities_text, list_capabilities),
    }[what]
    found = _open(bank)
    if session.out.json:
        session.out.document(f"bank-{what}", as_data(found))
    else:
        text = as_text(found)
        session.out.line(_wrapped(text) if session.out.on_terminal else text)


@command.command(
    "show",
    epilog=examples(
        ("tao-sdk bank show dino", "its actions and images"),
        ("tao-sdk bank show dino train", "one action"),
        ("tao-sdk bank show dino evaluate --deploy", "its TensorRT form"),
    ),
)
@click.argument("model")
@click.argument("action", required=False)
@click.option("--deploy", is_flag=True, help="The TensorRT form of the action.")
@click.option("--variant", metavar="NAME", help="The template to use where there are several.")
@bank_option
@json_option
@pass_session
def show_command(
    session: Session,
    model: str,
    action: str | None,
    deploy: bool,
    variant: str | None,
    bank: Path | None,
) -> None:
    """Show a model, or everything that a job for one of its actions needs.

    MODEL is a folder, a network_arch, a name or an alias.
    """
    with usage_errors():
        if action is None:
            _show_model(session, _open(bank), model)
            return
        from tao_sdk.skills import action as prepare

        prepared = prepare(model, action, bank=_open(bank), deploy=deploy, variant=variant)
    _show_action(session, prepared)


@command.command("check")
@click.argument("folder", metavar="[DIR]", type=bank_folder, required=False)
@json_option
@pass_session
def check_command(session: Session, folder: Path | None) -> int:
    """Check a bank (default: the one that is used); the exit code is 1 when there is a problem.

    A problem would make a job fail or do something else than is written. A note tells what the SDK
    copes with and other readers may not.
    """
    from tao_sdk.skills.checking import PROBLEM, check_bank

    root = _open(folder).path
    findings = check_bank(root)
    problems = sum(finding.level == PROBLEM for finding in findings)
    if session.out.json:
        found = [finding._asdict() for finding in findings]
        session.out.document(
            "bank-check", {"path": str(root), "problems": problems, "findings": found}
        )
    else:
        for finding in findings:
            session.out.line(f"{finding.level:<7}  {finding}")
    counted = _count(problems, "problem"), _count(len(findings) - problems, "note")
    session.out.say(f"{root}: {', '.join(counted)}")
    return exit_codes.PROBLEM if problems else exit_codes.OK


def _wrapped(text: str) -> str:
    """Wrapped between words to fit the terminal; continued lines are indented below their entry."""
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(
            line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for line in text.splitlines()
    )


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what if number == 1 else what + 's'}"


def _open(path: Path | None) -> SkillBank:
    from tao_sdk.skills import SkillBank

    return SkillBank(path)


def _show_model(session: Session, bank: SkillBank, name: str) -> None:
    skill = bank.model(name)
    images = {action: bank.resolve_image(skill.folder, action) for action in skill.actions()}
    if session.out.json:
        fields = {"model": skill.folder, "network_arch": skill.network_arch}
        session.out.document("bank-model", {**fields, "actions": images, "metadata": skill.info})
        return
    session.out.line(f"{skill.folder} ({skill.network_arch})")
    if skill.info.get("description"):
        session.out.line(str(skill.info["description"]))
    session.out.line("")
    width = max(map(len, images), default=0)
    for action, image in images.items():
        session.out.line(f"{action:<{width}}  {image}")


def _show_action(session: Session, action: SkillAction) -> None:
    from dataclasses import asdict

    from tao_sdk.spec_files import dump_spec

    if session.out.json:
        fields = {**asdict(action), "metadata_path": str(action.metadata_path)}
        session.out.document("bank-action", fields)
        return
    out = session.out
    facts = {
        "model": f"{action.model} ({action.network_arch})",
        "action": f"{action.name}, mode {action.mode}",
        "image": action.image,
        "command": action.command.strip(),
        "inputs": ", ".join(action.inputs),
        "outputs": ", ".join(action.outputs),
        "to give": ", ".join(action.missing),
        "credentials": ", ".join(action.required_credentials),
        "from": str(action.metadata_path),
    }
    for label, value in facts.items():
        if value:
            out.line(f"{label:<11}  {value}")
    if action.specs:
        out.line(f"\nspec ({action.config_format}):\n")
        out.line(dump_spec(action.specs, action.config_format).rstrip())
    for text in action.notes:
        out.note(text)
