"""What a short-lived job runs to tell about a volume that only jobs see; $P is a path on it. Pure.

Whoever sends one adds END as its last line: an answer without it was cut short.
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
