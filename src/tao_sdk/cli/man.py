"""`tao-sdk man`."""

from __future__ import annotations

import click

from tao_sdk.cli.help_text import examples
from tao_sdk.cli.manual_page import manual_page
from tao_sdk.cli.session import Session, json_option, pass_session


@click.command(
    epilog=examples(
        ("tao-sdk man | man -l -", "read it"),
        ("tao-sdk man > ~/.local/share/man/man1/tao-sdk.1", "install it"),
    )
)
@json_option
@pass_session
@click.pass_context
def command(context: click.Context, session: Session) -> None:
    """Print the manual page.

    It is made from the same words as --help, in the language of man(1).
    """
    page = manual_page(context.find_root())
    if session.out.json:
        session.out.document("manual", {"page": page})
        return
    session.out.line(page)
    if session.out.on_terminal:
        session.out.note("to read it: tao-sdk man | man -l -")
