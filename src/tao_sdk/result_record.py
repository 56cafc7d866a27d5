"""The result record: how a job's outcome is known after its platform has forgotten it.

Every platform starts the command through `SHIM`, one line of portable shell that runs the command,
passes signals on, and leaves `tao_result.json` (rank 0) or `tao_result.<rank>.json` beside the
results. The exit code of the shim is the exit code of the command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tao_sdk.untrusted import read_regular, whole_number

RECORD_VERSION = 1
MAX_RECORD_BYTES = 64 * 1024
"""Readers of a record read no more than this."""

# The job writes its records, or anything else under their names: every value has bounds.
_MAX_RANK = 99_999
_MAX_ATTEMPT = 99_999
_MAX_HOST_CHARACTERS = 255
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_YEARS = range(2000, 2200)

# Why it looks like this. A shell waits for a foreground command however many signals it gets, and
# its code is then exact: right wherever the platform signals every process of the job
# (TAO_GROUP_SIGNALS). Elsewhere the shim alone gets the signal, as process 1 of a container does,
# and must pass it on, so the command runs in the background: a signal then interrupts `wait`, the
# trap passes it on, and `wait` is repeated for the command's own code (127 or -1 only mean that the
# shell had handed the code out before). A signal that comes just before the `wait` interrupts it in
# some shells although its trap has run: then the command is still there, and is waited for again.
# The trap stands before the command starts; a signal that comes in between is passed on as soon as
# there is someone to pass it to. `3<&0` keeps the job's input: a background command would read
# /dev/null. On SLURM a SIGTERM also ends the step, and its output is lost. So there the shim is
# asked by SIGURG, which nobody else minds, to stop its process group (TAO_GROUP_SIGNALS=urg). Where
# Slurm tracks processes by control groups it signals none but the shim: a SIGTERM is passed on to
# the group as well (TAO_GROUP_SIGNALS=task); once, because a second one means "at once" to many
# programs. The record is written to a temporary name and renamed: it is whole or absent. A command
# that writes a richer record itself, as the runner does, leaves it under the name
# TAO_RUNNER_RECORD.<its exit code>. It is taken if that is how the command ended: one that was
# killed later is not believed. What a killed attempt left under such names (in a container the
# number of the shim is always 1) is removed before. Signals are not heard while the record is
# written: bash does not survive one within `$(...)`. The names of its variables are such that no
# job has them: a variable that the job finds set would change with ours.
SHIM = (
    'tao_d="${TAO_RESULTS_ROOT:+$TAO_RESULTS_ROOT/$TAO_JOB_ID}"; '
    'tao_r="${NODE_RANK:-0}"; case "$tao_r" in *[!0-9]*) tao_r=0;; esac; '
    'tao_f="$tao_d/tao_result.json"; [ "$tao_r" = 0 ] || tao_f="$tao_d/tao_result.$tao_r.json"; '
    'if [ -n "$tao_d" ]; then export TAO_RUNNER_RECORD="$tao_f.$$"; rm -f "$tao_f.$$".*; fi; '
    "tao_s=$(date -u +%Y-%m-%dT%H:%M:%SZ); "
    'tao_g="$TAO_GROUP_SIGNALS"; '
    'if [ "$tao_g" = 1 ]; then trap : TERM INT HUP; "$@"; tao_c=$?; else '
    "tao_p=; tao_n=0; tao_k=; trap 'tao_n=1; "
    """[ "$tao_g" ] || [ -z "$tao_p" ] || kill -TERM "$tao_p" 2>/dev/null' """
    """TERM INT HUP; tao_o='trap tao_n=1 TERM URG; tao_n=1; kill -TERM 0'; """
    '[ -z "$tao_g" ] || trap "$tao_o" URG; [ "$tao_g" != task ] || trap "$tao_o" TERM; '
    'exec 3<&0; "$@" <&3 3<&- & tao_p=$!; exec 3<&-; '
    '[ "$tao_n" = 0 ] || kill -TERM "$tao_p" 2>/dev/null; '
    'while :; do tao_n=0; wait "$tao_p"; tao_c=$?; '
    'case "$tao_c" in 127|-1) tao_c=${tao_k:-$tao_c};; esac; '
    '[ "$tao_n" = 1 ] || { [ "$tao_c" -gt 128 ] && kill -0 "$tao_p" 2>/dev/null; } || break; '
    "tao_k=$tao_c; done; fi; trap '' TERM INT HUP URG; "
    'if [ -n "$tao_d" ] && mkdir -p "$tao_d"; then '
    '{ [ -f "$tao_f.$$.$tao_c" ] && mv -f "$tao_f.$$.$tao_c" "$tao_f"; } || { printf '
    """'{"version":1,"job_id":"%s","rank":%s,"attempt":%s,"exit_code":%s,"""
    """"started_at":"%s","ended_at":"%s","host":"%s"}\\n' """
    '"$TAO_JOB_ID" "$tao_r" "${TAO_ATTEMPT:-1}" "$tao_c" "$tao_s" '
    '"$(date -u +%Y-%m-%dT%H:%M:%SZ)" '
    '"${SLURMD_NODENAME:-$(uname -n)}" > "$tao_f.$$" && mv -f "$tao_f.$$" "$tao_f"; }; '
    'rm -f "$tao_f.$$" "$tao_f.$$".*; fi; exit "$tao_c"'
)

# Where nobody but the job can read its results folder, the record is its last words as well, on a
# line of its own: `told_record` knows it, and whoever reads the log is not shown it.
_TOLD = "tao-sdk-result "
_EXIT = 'exit "$tao_c"'
_TELL = (
    f"""printf '\\n{_TOLD}{{"version":1,"job_id":"%s","rank":%s,"attempt":%s,"exit_code":%s,"""
    """"started_at":"%s","ended_at":"%s","host":"%s"}\\n' """
    '"$TAO_JOB_ID" "$tao_r" "${TAO_ATTEMPT:-1}" "$tao_c" "$tao_s" '
    '"$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(uname -n)"; '
)
RECORD_WORD = _TOLD.strip()
"""What to search a log for."""


def shim_argv(argv: Sequence[str], *, tell: bool = False) -> list[str]:
    """The words that run `argv` through the shim; `tell`: the record is printed as well."""
    shim = SHIM.removesuffix(_EXIT) + _TELL + _EXIT if tell else SHIM
    return ["/bin/sh", "-c", shim, "tao-shim", *argv]


def told_record(line: str, job_id: str) -> ResultRecord | None:
    """The record that a line of a job's log is; None for any other line."""
    if not line.startswith(_TOLD):
        return None
    return ResultRecord.parse(line.removeprefix(_TOLD), job_id)


def record_name(rank: int) -> str:
    """The file name of a rank's record."""
    return f"tao_result.{rank}.json" if rank else "tao_result.json"


class ResultRecord(NamedTuple):
    """What a rank of a job left behind when its command ended."""

    job_id: str
    exit_code: int
    started_at: str
    ended_at: str
    host: str = ""
    rank: int = 0
    attempt: int = 1

    @classmethod
    def parse(cls, text: str, job_id: str) -> ResultRecord | None:
        """Read a record; None for anything torn, foreign, of another job or out of bounds."""
        if len(text) > MAX_RECORD_BYTES:
            return None
        try:
            data: Any = json.loads(text)
            if data["job_id"] != job_id or data["version"] != RECORD_VERSION:
                return None
            return cls(
                job_id=job_id,
                exit_code=whole_number(data["exit_code"], -255, 255),
                started_at=_time(data["started_at"]),
                ended_at=_time(data["ended_at"]),
                host=str(data.get("host", ""))[:_MAX_HOST_CHARACTERS],
                rank=whole_number(data.get("rank", 0), 0, _MAX_RANK),
                attempt=whole_number(data.get("attempt", 1), 0, _MAX_ATTEMPT),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def _time(value: Any) -> str:
    """A time as the shim and the runner write it, or ""; raises `ValueError` for anything else."""
    text = str(value)
    if text and not (_TIME.fullmatch(text) and datetime.fromisoformat(text[:19]).year in _YEARS):
        raise ValueError("not a time in UTC")
    return text


def read_records(folder: Path, job_id: str, ranks: int) -> list[ResultRecord]:
    """The records that a job left in a folder of this machine, by rank."""
    found = []
    for rank in range(ranks):
        data = read_regular(folder / record_name(rank), MAX_RECORD_BYTES)
        record = ResultRecord.parse((data or b"").decode("utf-8", "replace"), job_id)
        if record is not None:
            found.append(record)
    return found


def first_failure(records: Sequence[ResultRecord]) -> ResultRecord | None:
    """The rank that failed first: the others are collateral."""
    failed = [record for record in records if record.exit_code != 0]
    # Of those that ended in the same second, one that was asked to stop is never the first.
    return min(
        failed,
        key=lambda record: (record.ended_at, record.exit_code in (143, 130), record.rank),
        default=None,
    )
