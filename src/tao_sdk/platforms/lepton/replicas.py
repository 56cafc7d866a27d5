"""The workers of a job, in the shape that every platform returns, and why they wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk.platforms.lepton.naming import id_of, part
from tao_sdk.platforms.lepton.status import moment

# What no amount of waiting changes.
STUCK = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    }
)

Replica = Mapping[str, Any]


def replica_of(replica: Replica, server_id: str, position: int) -> dict[str, Any]:
    """One worker, and why it does not run."""
    status = part(replica, "status")
    node = part(status, "node")
    return {
        "name": id_of(replica),
        "id": id_of(replica),
        "rank": rank_of(replica, server_id, position),
        "started_at": moment(status.get("started_at") or status.get("start_time")),
        "finished_at": moment(status.get("finished_at") or status.get("end_time")),
        "status": {
            "node": {
                "name": node_of(replica),
                "node_group_id": str(node.get("node_group_id") or ""),
            },
            "phase": str(status.get("phase") or status.get("state") or ""),
            "readiness_issue": issue_of(replica),
            "exit_code": status.get("exit_code"),
        },
    }


def rank_of(replica: Replica, server_id: str, position: int) -> int:
    """The rank of a worker: in its name, `<job>-<rank>[-<word>]`, or by its place in the list."""
    status = part(replica, "status")
    index = status.get("worker_index", status.get("index"))
    if isinstance(index, int):
        return index
    rest = id_of(replica).removeprefix(f"{server_id}-")
    rank = rest.partition("-")[0]
    return int(rank) if rank.isdecimal() else position


def node_of(replica: Replica) -> str:
    node = part(part(replica, "status"), "node")
    return str(node.get("name") or node.get("id") or "")


def issue_of(replica: Replica) -> dict[str, str] | None:
    """Why a worker is not ready."""
    issue = part(part(replica, "status"), "readiness_issue")
    if not issue.get("reason"):
        return None
    return {"reason": str(issue["reason"]), "message": str(issue.get("message") or "")}


def stuck_on(replicas: Sequence[Replica]) -> str:
    """What keeps the workers from ever starting; "" where nothing does."""
    for replica in replicas:
        issue = issue_of(replica)
        if issue is not None and issue["reason"] in STUCK:
            return f"{issue['reason']}: {issue['message']}".rstrip(": ")
    return ""
