"""Programs of a short-lived job that inspects a volume; $P is a path on it. Pure.

A caller adds END as the last line of output: an answer without it was cut short.
"""

from __future__ import annotations

from tao_sdk.untrusted import number

EXISTS = 'if [ -e "$P" ]; then echo yes; else echo no; fi'
LIST = 'if [ -d "$P" ]; then ls -A1 "$P"; elif [ -e "$P" ]; then basename "$P"; fi'
FILES = 'cd "$P" 2>/dev/null && find . -type f -exec wc -c {} \\;'
END = "tao-look-end"


def parse_files(told: str) -> dict[str, int]:
    """The answer to FILES: sizes by path."""
    found = {}
    for line in told.splitlines():
        digits, _, path = line.strip().partition(" ")
        size = number(digits)
        if size is not None:
            found[path.removeprefix("./")] = size
    return found
