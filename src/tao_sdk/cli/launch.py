"""`tao-sdk launch`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tao_sdk.cli import exit_codes
from tao_sdk.cli.asking import StoppedError, ask_yes, screen_width, styled
from tao_sdk.cli.detaching import attended, have_it_watched, report_id
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.jobs import FoundJob
from tao_sdk.cli.launch_flags import LaunchFlags, command_line, launch_flags, make_launch_plan
from tao_sdk.cli.launch_monitoring import attend, introduce
from tao_sdk.cli.launch_views import gate_document, show_closed_gate, show_review
from tao_sdk.cli.launch_wizard import Wizard, choose_model
from tao_sdk.cli.parameters import usage_errors
from tao_sdk.cli.plan import show_plan
from tao_sdk.cli.preflight_view import shown_preflight
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.errors import TaoError
from tao_sdk.launch import (
    Gate,
    LaunchPlan,
    examine,
    inputs_gate,
    prepare,
    status_command,
    submit,
)
from tao_sdk.platforms import registry

if TYPE_CHECKING:
    from tao_sdk.platforms.backend import Plan
    from tao_sdk.platforms.sdk import PlatformSDK


@click.command(
    epilog=examples(
        ("tao-sdk launch", "be asked for everything"),
        ("tao-sdk launch dino -p slurm", "be asked for the rest"),
        ("tao-sdk launch dino -p local --yes", "take every suggestion"),
        ("tao-sdk launch --json dino", "what is missing, for programs"),
        ("tao-sdk launch dino -p slurm --dry-run", "show the plan"),
    ),
)
@launch_flags
@click.option("-y", "--yes", is_flag=True, help="Accept the suggestions: image, GPUs, monitoring.")
@click.option("--dry-run", is_flag=True, help="Show the platform's plan; nothing is created.")
@click.option("--no-watch", is_flag=True, help="Do not start a watcher in the background.")
@json_option
@pass_session
def command(
    session: Session, /, yes: bool, dry_run: bool, no_watch: bool, **given: Any
) -> int | None:
    """Launch an action of a model: asks, checks, launches, reports.

    MODEL is a folder, a network_arch or an alias of the skill bank; ACTION defaults to train.
    Nothing is created before every condition of the gate holds. At a terminal you are asked for
    what is missing; elsewhere it is printed, and the exit code is 2. A failed check is 1; a job
    that is watched gives its own exit code.
    """
    asks = not session.out.json and not yes and sys.stdin.isatty() and sys.stderr.isatty()
    try:
        with usage_errors():
            plan = _complete(session, given, asks=asks, yes=yes)
            if plan is None:
                return exit_codes.MISSING_INPUT
            gate = inputs_gate(plan)
    except StoppedError:
        session.out.warn("stopped; nothing was created")
        return exit_codes.DETACHED
    if gate.needs_input:
        return _say_what_is_missing(session, gate)
    if not gate.is_plannable:
        return _say_what_is_wrong(session, gate)
    sdk = session.place.sdk(registry.canonical(plan.facts.platform_name))
    if dry_run:
        with usage_errors():
            prepared = prepare(plan, sdk)
        show_plan(session, prepared)
        return None
    return _launch(session, plan, sdk, asks=asks, watched=not no_watch)


def _complete(
    session: Session, given: dict[str, Any], *, asks: bool, yes: bool
) -> LaunchPlan | None:
    """The plan, completed by questions if the user can be asked; None if answers are missing."""
    if given["model"] is None:
        if not asks:
            raise click.UsageError("say which MODEL; these are known: tao-sdk bank list")
        given["model"] = choose_model(given["bank"])
    plan = make_launch_plan(session, LaunchFlags(**given))
    if asks:
        return Wizard(session, plan).complete()
    return plan.with_defaults() if yes else plan


def _say_what_is_missing(session: Session, gate: Gate) -> int:
    if session.out.json:
        session.out.document("gate", gate_document(gate))
    else:
        session.out.line(gate.plan.prompt(screen_width()))
        session.out.flush()
        flags = [flag for question in gate.questions for flag in question.answer_with]
        session.out.say(f"\nAnswer with: {', '.join(flags)}")
    if gate.plan.facts.no_way_there:
        # Said before the user answers the rest.
        session.out.warn(f"cannot be launched yet: {gate.plan.facts.no_way_there}")
    return exit_codes.MISSING_INPUT


def _say_what_is_wrong(session: Session, gate: Gate) -> int:
    if session.out.json:
        session.out.document("gate", gate_document(gate))
    show_closed_gate(session.out, gate)
    return exit_codes.PROBLEM


def _say_how_to_go_on(session: Session, plan: LaunchPlan) -> None:
    """Print the command that keeps the answers given so far."""
    session.out.say(f"To go on from here:\n  {command_line(session, plan)}")


def _launch(
    session: Session, plan: LaunchPlan, sdk: PlatformSDK, *, asks: bool, watched: bool
) -> int | None:
    out = session.out
    out.say(f"\n{styled('Preflight', bold=True)}", exact=True)
    try:
        gate = examine(
            plan,
            preflight=lambda request, bank, _: shown_preflight(out, request, bank, is_result=False),
        )
    except KeyboardInterrupt:
        out.say("")  # ends the line on which the terminal shows ^C
        out.warn("stopped; nothing was created")
        return exit_codes.DETACHED
    if not gate.is_open:
        code = _say_what_is_wrong(session, gate)
        if asks:
            _say_how_to_go_on(session, plan)
        return code
    with usage_errors():
        prepared = prepare(plan, sdk)
    if out.json:
        out.document("gate", gate_document(gate))
    show_review(out, plan, prepared.warnings)
    try:
        if asks and not ask_yes("Launch?", default=True):
            out.warn("not launched; nothing was created")
            _say_how_to_go_on(session, plan)
            return exit_codes.DECLINED
    except StoppedError:
        out.warn("stopped; nothing was created")
        return exit_codes.DETACHED
    return _run(session, gate, sdk, prepared, watched=watched)


def _run(
    session: Session, gate: Gate, sdk: PlatformSDK, prepared: Plan, *, watched: bool
) -> int | None:
    def work() -> int:
        from tao_sdk.cli.submission_feed import told_meanwhile  # brings logging

        with told_meanwhile(session.out):
            submit(gate, sdk, prepared)
        return _attend(session, gate.plan, prepared.job_id, watched=watched)

    return attended(session, prepared, work, watched=watched)


def _attend(session: Session, plan: LaunchPlan, job_id: str, *, watched: bool) -> int:
    facts = plan.facts
    try:
        watcher = have_it_watched(session) if watched else None
        job = FoundJob(session.place, session.place.store.find_job(job_id))
        introduce(session, job, watcher)
        if not facts.monitor:
            report_id(session, job)
            return exit_codes.OK
        return attend(session, job, facts.status_interval_minutes)
    except (TaoError, OSError):
        # The job is not the less there for it.
        back = status_command(job_id, session.place.state_file)
        session.out.warn(f"cannot stay with job {job_id}, which goes on; ask for it by: {back}")
        raise
