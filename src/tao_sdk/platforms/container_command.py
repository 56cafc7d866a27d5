"""How a command runs in a container, on platforms that take nothing but words. Pure."""

from __future__ import annotations

# The kernel takes at most 128 KiB for one word of a command line.
LONGEST_ARGUMENT = 120_000
# bash where the image has it, because that is what commands are written for; sh otherwise.
SHELL = (
    'd="${TAO_RESULTS_ROOT:+$TAO_RESULTS_ROOT/$TAO_JOB_ID}"; '
    '[ -z "$d" ] || [ -d "$d" ] || mkdir -p "$d" 2>/dev/null; '
    'if [ -x /bin/bash ]; then exec /bin/bash "$@"; else exec /bin/sh "$@"; fi'
)
SHELL_NOTE = "the command runs in /bin/bash -c, or in /bin/sh if the image has no bash"
