"""From evidence to a cause, a class and a suggestion."""

from __future__ import annotations

import signal
from dataclasses import replace
from enum import Enum
from typing import Any

from tao_sdk.failures.evidence import Evidence, ReplicaEvidence

LOG_LINES_SHOWN = 5


class ErrClass(str, Enum):
    """What kind of failure it was; decides whether a retry makes sense."""

    PROGRAM = "ERR_PROGRAM"
    OOM = "ERR_OOM"
    DATA = "ERR_DATA"
    CREDENTIAL = "ERR_CREDENTIAL"
    IMAGE = "ERR_IMAGE"
    CAPACITY = "ERR_CAPACITY"
    TIMEOUT = "ERR_TIMEOUT"
    PREEMPTED = "ERR_PREEMPTED"
    INFRA = "ERR_INFRA"
    UNKNOWN = "ERR_UNKNOWN"

    def __str__(self) -> str:
        return self.value


def explain(evidence: Evidence) -> dict[str, Any]:
    """The explanation of a failure, in the shape that every platform returns."""
    first = _first_failing(evidence)
    if first is not None and first.exit_code is not None:
        evidence = replace(evidence, exit_code=first.exit_code)
    err_class, cause, suggestion = _judge(evidence)
    several = len(evidence.replicas) > 1
    if first is not None and several:
        cause = f"rank {first.rank}: {cause}"
    return {
        "err_class": err_class.value,
        "cause": cause,
        "suggestion": suggestion,
        "evidence": _quote(evidence),
        "exit_code": evidence.exit_code,
        "node": first.node if first else "",
        "rank": first.rank if first else None,
        "retriable": err_class in (ErrClass.PREEMPTED, ErrClass.INFRA),
        "job_failure_by_node_event": [
            _node_event(replica, first) for replica in evidence.replicas if _failed(replica)
        ],
    }


def _judge(evidence: Evidence) -> tuple[ErrClass, str, str]:
    code = evidence.exit_code
    if evidence.never_started:
        return (
            ErrClass.INFRA,
            evidence.reason or "the job was never submitted",
            "nothing ran and nothing was charged: submit it again",
        )
    if evidence.killed_from_outside:
        return (
            ErrClass.UNKNOWN,
            evidence.reason or "the processes disappeared without an exit code",
            "look for the kernel's out-of-memory killer (dmesg) and for someone who killed it, "
            "then submit again",
        )
    if code is None:
        return (
            ErrClass.UNKNOWN,
            evidence.reason or "vanished, outcome not known",
            "the platform no longer knows the job and it left no result record; check its "
            "results and submit again if they are incomplete",
        )
    if code in _SHELL_CODES:
        cause, suggestion = _SHELL_CODES[code]
        return ErrClass.PROGRAM, cause, suggestion
    if code == 128 + signal.SIGKILL:
        return (
            ErrClass.OOM,
            "killed (exit 137): as a rule the machine ran out of memory",
            "reduce the batch size or the number of data-loader workers, or use a larger machine",
        )
    if 128 < code < 160:
        return (
            ErrClass.PROGRAM,
            f"ended by signal {_signal_name(code - 128)} (exit {code})",
            "see the end of the log; a crash inside native code leaves no traceback",
        )
    return (
        ErrClass.PROGRAM,
        f"the command ended with exit code {code}",
        "see the end of the log for the program's own message",
    )


_SHELL_CODES = {
    126: (
        "the command cannot be executed (exit 126)",
        "check its file mode and that it was built for this machine",
    ),
    127: (
        "command not found (exit 127)",
        "check the spelling, and that the image or environment has the program on its PATH",
    ),
}


def _first_failing(evidence: Evidence) -> ReplicaEvidence | None:
    failed = [replica for replica in evidence.replicas if _failed(replica)]
    return min(failed, key=lambda r: (r.ended_at or "9", r.rank), default=None)


def _failed(replica: ReplicaEvidence) -> bool:
    return replica.exit_code not in (None, 0) or bool(replica.reason)


def _node_event(replica: ReplicaEvidence, first: ReplicaEvidence | None) -> dict[str, str]:
    what = replica.reason or f"rank {replica.rank} ended with exit code {replica.exit_code}"
    collateral = "" if replica == first else " (collateral: another rank failed first)"
    return {"node_event_name": replica.node or f"rank {replica.rank}", "message": what + collateral}


def _quote(evidence: Evidence) -> list[str]:
    lines = [line for line in evidence.log_tail.splitlines() if line.strip()]
    quoted = lines[-LOG_LINES_SHOWN:]
    return [evidence.reason, *quoted] if evidence.reason else quoted


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
