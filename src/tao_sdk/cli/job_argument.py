"""The JOB argument; the help of the group lists its forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tao_sdk.cli.completions import complete_job


def job_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """One JOB, as the parameter `job`."""
    return click.argument("job", metavar="JOB", shell_complete=complete_job)(command)


def jobs_argument(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Any number of them, as the parameter `jobs`."""
    return click.argument(
        "jobs",
        nargs=-1,
        required=required,
        metavar="JOB..." if required else "[JOB...]",
        shell_complete=complete_job,
    )
