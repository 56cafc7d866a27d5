"""`tao-sdk completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tao_sdk.cli.help_text import examples
from tao_sdk.cli.session import Session, json_option, pass_session

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples(
        ('eval "$(tao-sdk completion bash)"', "in ~/.bashrc"),
        ('eval "$(tao-sdk completion zsh)"', "in ~/.zshrc"),
        ("tao-sdk completion fish | source", "in ~/.config/fish/config.fish"),
    )
)
@click.argument("shell", type=click.Choice(_SHELLS), metavar="|".join(_SHELLS))
@json_option
@pass_session
@click.pass_context
def command(context: click.Context, session: Session, shell: str) -> None:
    """Print the script that completes commands in your shell.

    It completes commands, options, platforms, and JOB from the newest jobs of the store.
    """
    group = context.find_root()
    program = str(group.info_name)
    variable = f"_{program}_COMPLETE".replace("-", "_").upper()
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click knows these shells
    script = found(group.command, {}, program, variable).source()
    if session.out.json:
        session.out.document("completion", {"shell": shell, "script": script})
    else:
        session.out.line(script.rstrip("\n"))
