"""Signs that a program is well: lines of training progress and of transfers that succeed.

An error that is followed by progress was not the end of the job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from tao_sdk.failures.log_lines import Level, Line

# Ranks that are still well, and bars that are drawn once more, print a little after a crash.
RECOVERED_AFTER = 3

_STEP = re.compile(
    r"\d{1,3}%\|"
    r"|\d ?(?:it/s|s/it|samples/s(?:ec)?|imgs?/s|tokens/s)\b"
    r"|\b(?:train_|val_|total_)?[Ll]oss(?:es)?\b['\"]?\s?[:=]?\s?-?\d"
    r"|^Epoch \[?\d+[/\]]"
    r"|\b(?:[Ee]poch|[Ss]tep|[Ii]ter(?:ation)?)\b\W{0,3}\d+.{0,60}\b(?:lr|eta|acc\w*|mAP|[Ll]oss)\b"
)
_TRANSFER = re.compile(
    r"\b(?:download|upload|stag|sync|copie|copy|fetch|transferr?)\w*\b.{0,80}"
    r"(?:\b(?:done|completed?|finished|succeeded|successful\w*)\b|\b\d+ ?/ ?\d+\b|\b\d{1,3} ?%)",
    re.IGNORECASE,
)
_SUCCESS = re.compile(
    r"\b(?:succe(?:eded|ss(?:ful(?:ly)?)?)|recovered|reconnected|ok)\b.{0,40}"
    r"\b(?:after|on|at|with) .{0,30}(?:retr|attempt|tr(?:y|ies)\b)"
    r"|\bretry succeeded\b|\b(?:connection|session) re-?established\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(r"(?i)error|exception|fail|fatal|killed|traceback|\bnan\b|timeout")


def progress_after(lines: Sequence[Line]) -> list[int]:
    """For every line, how much progress follows it."""
    weights = [_weight(line) for line in lines]
    from_the_end = list(accumulate(reversed(weights), initial=0))
    return from_the_end[-2::-1]


def _weight(line: Line) -> int:
    if line.level is Level.LOUD:
        return 0
    if _SUCCESS.search(line.text):
        return RECOVERED_AFTER
    if _TROUBLE.search(line.text):
        return 0
    return 1 if _STEP.search(line.text) or _TRANSFER.search(line.text) else 0
