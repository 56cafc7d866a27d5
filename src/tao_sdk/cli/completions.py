"""What the shell offers when the tab key is pressed. Asks no platform and creates nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from tao_sdk.cli.humanise import short_id
from tao_sdk.errors import TaoError
from tao_sdk.visible_text import one_line

if TYPE_CHECKING:
    from tao_sdk.job_store import Row

_OFFERED = 50


def complete_job(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The newest jobs of the store whose id begins so."""
    try:
        rows = _newest(context.find_root().params.get("state"))
    except TaoError:
        return []  # a message would disturb the line that is being typed
    names = Counter(short_id(str(row["job_id"])) for row in rows)
    items = []
    for row in rows:
        whole = str(row["job_id"])
        short = short_id(whole)
        name = short if names[short] == 1 and short.startswith(incomplete) else whole
        if name.startswith(incomplete):
            items.append(CompletionItem(name, help=_describe(row)))
    return items


def complete_platform(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The platforms that are installed."""
    from tao_sdk.platforms import registry

    return [CompletionItem(name) for name in registry.names() if name.startswith(incomplete)]


def complete_file(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Whatever files the shell finds."""
    return [CompletionItem(incomplete, type="file")]


def _newest(state_file: Path | None) -> list[Row]:
    from tao_sdk.job_store import JobStore
    from tao_sdk.job_store.paths import state_paths

    database = Path(state_paths(state_file).database)
    if not database.exists():
        return []
    with JobStore(database) as store:
        return store.list_jobs(limit=_OFFERED)


def _describe(row: Row) -> str:
    named = " ".join(name for name in (row["network_arch"], row["action"]) if name)
    return one_line(f"{row['status']} on {row['backend_type']} {named}")
