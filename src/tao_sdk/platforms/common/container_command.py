"""How a command becomes the arguments of a program. Pure."""

from __future__ import annotations

MAX_ARGUMENT_BYTES = 120_000
"""The kernel takes at most 128 KiB for one argument."""
# bash if the image has it, because commands are written for it; sh otherwise.
SHELL = (
    'd="${TAO_RESULTS_ROOT:+$TAO_RESULTS_ROOT/$TAO_JOB_ID}"; '
    '[ -z "$d" ] || [ -d "$d" ] || mkdir -p "$d" 2>/dev/null; '
    'if [ -x /bin/bash ]; then exec /bin/bash "$@"; else exec /bin/sh "$@"; fi'
)
SHELL_NOTE = "the command runs in /bin/bash -c, or in /bin/sh if the image has no bash"


def fits_argument(text: str) -> bool:
    """Whether a program accepts this text as one argument."""
    return len(text.encode()) <= MAX_ARGUMENT_BYTES
