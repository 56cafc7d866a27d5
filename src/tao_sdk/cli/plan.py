"""`tao-sdk plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tao_sdk.cli.help_text import examples
from tao_sdk.cli.launch_options import LaunchArguments, launch_options, make_plan
from tao_sdk.cli.session import Session, json_option, pass_session

if TYPE_CHECKING:
    from tao_sdk.platforms.backend import Plan


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        ("tao-sdk plan --gpus 1 -- python train.py", "what would run, and where"),
        ("tao-sdk plan --json -- true | jq .artefacts", "what the platform would get"),
    ),
)
@launch_options
@json_option
@pass_session
def command(session: Session, /, **given: Any) -> None:
    """Show exactly what run would do; nothing is created.

    The same options as run. Secret values are left out.
    """
    _, plan = make_plan(session, LaunchArguments(**given))
    show_plan(session, plan)


def show_plan(session: Session, plan: Plan) -> None:
    """The plan for a person, or as a document."""
    if session.out.json:
        session.out.document("plan", plan.to_dict())
    else:
        session.out.line(plan.render())
