"""`tao-sdk doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.checks.credentials import check_credentials, check_settings
from tao_sdk.cli.checks.findings import Finding, Level, problem
from tao_sdk.cli.checks.installation import check_extras, check_installation
from tao_sdk.cli.checks.instances import check_instances
from tao_sdk.cli.checks.machine import check_gpus, check_orphans, check_programs
from tao_sdk.cli.checks.recovery import recover_store
from tao_sdk.cli.checks.state import check_state
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.output import Output
from tao_sdk.cli.session import Place, Session, json_option, pass_session
from tao_sdk.errors import TaoError
from tao_sdk.visible_text import one_line


class Section(NamedTuple):
    """The findings about one subject."""

    name: str
    findings: list[Finding]


@click.command(
    epilog=examples(
        ("tao-sdk doctor", "when something does not work"),
        ("tao-sdk doctor > report.txt", "for a bug report; holds no secret"),
        ("tao-sdk doctor --recover", "when the job store is damaged"),
        ("tao-sdk doctor --json | jq '.problems'", "how many problems"),
    )
)
@click.option(
    "--recover",
    is_flag=True,
    help="Salvage a damaged store: put a new one in its place, keep the damaged one beside it.",
)
@json_option
@pass_session
def command(session: Session, recover: bool) -> int:
    """Check the installation, the state and this machine.

    Every line is ok, a note, or a problem with what to do about it. Looks only: nothing is
    created, changed or removed, and no platform is contacted. Of credentials only the names are
    shown. With --recover a damaged store is replaced first by one with all that can be read of it;
    lost local jobs are rebuilt from their folders.
    """
    if recover:
        recover_store(session)
    sections = [Section(name, list(_guarded(check))) for name, check in _checks(session.place)]
    levels = Counter(finding.level for section in sections for finding in section.findings)
    if session.out.json:
        _document(session.out, sections, levels)
    else:
        width = max(len(finding.name) for section in sections for finding in section.findings)
        for section in sections:
            _show(session.out, section, width)
    session.out.say(_summary(levels))
    return exit_codes.PROBLEM if levels[Level.PROBLEM] else exit_codes.OK


def _checks(place: Place) -> Iterable[tuple[str, Callable[[], Iterator[Finding]]]]:
    return (
        ("installation", check_installation),
        ("extras", check_extras),
        ("credentials", check_credentials),
        ("settings", check_settings),
        ("state", partial(check_state, place)),
        ("GPUs of this machine", check_gpus),
        ("jobs of this machine", partial(check_orphans, place)),
        ("rented instances", partial(check_instances, place)),
        ("programs", check_programs),
    )


def _guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A check that cannot go on has found a problem."""
    try:
        yield from check()
    except (TaoError, OSError) as error:
        yield problem("check", str(error), "")
    except Exception as error:  # noqa: BLE001 - the other checks still tell something
        yield problem("check", f"{type(error).__name__}: {error}", "")


def _document(out: Output, sections: Iterable[Section], levels: Counter[Level]) -> None:
    checks = [
        {
            "section": section.name,
            "name": finding.name,
            "level": finding.level.value,
            "text": finding.text,
            "todo": finding.todo,
        }
        for section in sections
        for finding in section.findings
    ]
    fields = {"problems": levels[Level.PROBLEM], "notes": levels[Level.NOTE], "checks": checks}
    out.document("doctor", fields)


def _summary(levels: Counter[Level]) -> str:
    count = levels[Level.PROBLEM]
    found = "1 problem" if count == 1 else f"{count or 'no'} problems"
    return f"{found}, {levels[Level.NOTE]} notes"


def _show(out: Output, section: Section, width: int) -> None:
    if out.on_terminal:
        _show_to_person(section, width)
        return
    out.line(section.name)
    for finding in section.findings:
        text = one_line(f"{finding.name}: {finding.text}")
        out.line(f"  {finding.level.value:<7}  {text}")
        if finding.todo:
            out.line(f"           -> {finding.todo}")


def _show_to_person(section: Section, width: int) -> None:
    from rich.table import Table

    from tao_sdk.cli.consoles import console, plain

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, min_width=width)
    grid.add_column(overflow="fold")
    for finding in section.findings:
        mark, style = _MARKS[finding.level]
        text = plain(one_line(finding.text))
        if finding.todo:
            todo_style = "bold" if finding.level is Level.PROBLEM else "dim"
            text.append_text(plain(f"\n→ {finding.todo}", todo_style))
        grid.add_row(plain(f"  {mark}", style), plain(finding.name), text)
    console().print(plain(section.name, "bold"), grid, sep="\n")


_MARKS = {Level.OK: ("✓", "green"), Level.NOTE: ("•", "yellow"), Level.PROBLEM: ("✗", "bold red")}
