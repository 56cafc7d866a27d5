"""From what was read about a local job to its state: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import MISSING, Observation
from tao_sdk.process_identity import Fate
from tao_sdk.result_record import ResultRecord, first_failure

# A claim without a state: the supervisor has only just begun.
_CLAIMED: dict[str, Any] = {"phase": "starting", "message": "starting"}

_OUTCOMES = {
    "complete": JobState.COMPLETE,
    "error": JobState.ERROR,
    "canceled": JobState.CANCELED,
    "refused": JobState.ERROR,
}

_PHASES = {
    "starting": JobState.PENDING,
    "queued": JobState.PENDING,
    "running": JobState.RUNNING,
}


class Snapshot(NamedTuple):
    """Everything that was read about one job at one moment."""

    claim: dict[str, Any] | None
    state: dict[str, Any] | None
    nodes: int = 1
    supervisor: Fate = Fate.UNKNOWN
    ranks_alive: tuple[bool, ...] = ()
    records: tuple[ResultRecord, ...] = ()
    unreachable: str = ""
    lost: bool = False
    """Its supervisor is gone, and its processes cannot be seen from here."""
    restarted: bool = False
    """The machine was restarted since the supervisor began."""


def interpret(seen: Snapshot) -> Observation:
    """The state of the job according to the snapshot."""
    if seen.unreachable:
        return Observation(None, unreachable=seen.unreachable)
    if seen.lost or seen.claim is None:
        return MISSING
    state = seen.state or _CLAIMED
    phase, outcome = state.get("phase"), state.get("outcome", "error")
    if phase not in (*_PHASES, "done") or outcome not in _OUTCOMES:
        return Observation(None, unreachable="its files were written by a newer version")
    if phase == "done":
        return Observation(
            _OUTCOMES[outcome],
            state["message"],
            state.get("exit_code"),
            state.get("started_at", ""),
            state["ended_at"],
            cancel_aware=True,
        )
    if seen.supervisor is Fate.GONE:
        return _without_supervisor(seen, state)
    return Observation(
        _PHASES[phase],
        state.get("message", ""),
        started_at=state.get("started_at", ""),
    )


def elsewhere(host: str) -> str:
    """Why a job of that machine has no state here."""
    return f"the job runs on {host.partition('/')[0]}, and this is another machine"


def _without_supervisor(seen: Snapshot, state: dict[str, Any]) -> Observation:
    """The supervisor was killed; the job may have gone on without it."""
    started = state.get("started_at", "")
    if any(seen.ranks_alive):
        failed = first_failure(seen.records)
        trouble = (
            f"; rank {failed.rank} has failed (exit code {failed.exit_code}), and the others "
            "still run: cancel the job"
            if failed
            else ""
        )
        return Observation(
            JobState.RUNNING,
            "its supervisor was killed (by the kernel's out-of-memory killer, or by hand); "
            f"the job goes on, and its own record will show how it ends{trouble}",
            started_at=started,
        )
    if state.get("phase") in ("starting", "queued") and not state.get("ranks"):
        why = "the machine was restarted" if seen.restarted else "its supervisor was killed"
        return Observation(JobState.ERROR, f"{why} before the job started", started_at=started)
    observation = _from_records(seen.records, seen.nodes, started)
    if seen.restarted and observation.ended_at == "":
        why = "the machine was restarted while the job ran; how far it came is not known"
        return observation._replace(message=why)
    return observation


def _from_records(records: Sequence[ResultRecord], nodes: int, started: str) -> Observation:
    failed = first_failure(records)
    if failed is not None:
        return Observation(
            JobState.ERROR,
            f"ended with exit code {failed.exit_code} after its supervisor had been killed",
            failed.exit_code,
            started,
            failed.ended_at,
        )
    if len(records) == nodes:
        ended = max(record.ended_at for record in records)
        return Observation(
            JobState.COMPLETE, "completed after its supervisor had been killed", 0, started, ended
        )
    return Observation(
        JobState.ERROR,
        "killed together with its supervisor (by the kernel's out-of-memory killer, or by hand); "
        "how far it came is not known",
        started_at=started,
    )
