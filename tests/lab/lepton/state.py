"""What a workspace has: jobs, secrets, node groups, shapes, logs."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_dice = random.Random()
ALIVE = ("alive_only", "alive_and_archive")


def word(length: int) -> str:
    return "".join(_dice.choice(_LETTERS) for _ in range(length))


@dataclass
class Worker:
    """One worker of a job, and its log."""

    id: str
    rank: int
    node: str = ""
    phase: str = "Pending"
    issue: dict[str, str] | None = None
    lines: list[tuple[int, str]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    exit_code: int | None = None
    pid: int = 0

    def describe(self, group: str) -> dict[str, Any]:
        node = {"name": self.node, "id": self.node, "node_group_id": group}
        status = {"node": node, "public_ip": None, "phase": self.phase}
        status |= {"cpu": 1, "memory_in_mb": 1024, "readiness_issue": self.issue}
        return {"id": self.id, "metadata": {"id": self.id, "name": self.id}, "status": status}


@dataclass
class PlayedJob:
    """A job as the server has it."""

    id: str
    body: dict[str, Any]
    created: float
    workers: list[Worker] = field(default_factory=list)
    changes: list[tuple[float, str]] = field(default_factory=list)
    """Since when it is in which state."""
    ready: int = 0
    failed: int = 0
    succeeded: int = 0
    completed: float | None = None
    archived: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    events: list[dict[str, Any]] = field(default_factory=list)
    analysis: dict[str, Any] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["spec"]
        return found

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.body["metadata"].get("labels") or {})

    @property
    def group(self) -> str:
        affinity = self.spec.get("affinity") or {}
        return str((affinity.get("allowed_dedicated_node_groups") or [""])[0])

    @property
    def state(self) -> str:
        return self.changes[-1][1]

    def turn(self, state: str) -> None:
        self.changes.append((time.time(), state))

    def seen(self, lag: float) -> str:
        """The state in a list that is `lag` seconds behind."""
        then = time.time() - lag
        return next((state for at, state in reversed(self.changes) if at <= then), "Starting")

    def describe(self, lag: float = 0.0) -> dict[str, Any]:
        status = {
            "job_name": self.id,
            "state": self.seen(lag),
            "ready": self.ready,
            "active": self.ready,
            "failed": self.failed,
            "succeeded": self.succeeded,
            "creation_time": int(self.created * 1000),
            "completion_time": int(self.completed * 1000) if self.completed else None,
            "job_history": [],
        }
        metadata = {
            **self.body["metadata"],
            "id": self.id,
            "created_at": int(self.created * 1000),
            "created_by": "user@example.com",
        }
        return {"metadata": metadata, "spec": self.spec, "status": status}


def shape(name: str, gpus: int, group: str, listed: bool = True) -> dict[str, Any]:
    spec: dict[str, Any] = {"cpu": 4.0, "memory_in_mb": 16384, "node_group_id": group}
    spec["listable_in"] = ["deployment", "job"] if listed else ["pod"]
    if gpus:
        spec |= {"accelerator_type": "NVIDIA-H100-80GB-HBM3", "accelerator_num": gpus}
        spec["accelerator_memory_in_mb"] = 81920 * gpus
    return {"metadata": {"id": name, "name": name}, "spec": spec}


class State:
    """One workspace. All access under `lock`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.RLock()
        self.jobs: dict[str, PlayedJob] = {}
        self.forgotten: set[str] = set()
        self.secrets: dict[str, str] = {}
        self.pull_secrets: dict[str, dict[str, Any]] = {}
        self.groups = [
            self._group("ng-main", "main", ["scratch-local", "lustre", "filestore-a"]),
            self._group("ng-full", "full", []),
        ]
        self.shapes = [
            shape("cpu.small", 0, ""),
            shape("cpu.medium", 0, ""),
            shape("gpu.h100-sxm", 1, "ng-main"),
            shape("gpu.4xh100-sxm", 4, "ng-main"),
            shape("gpu.8xh100-sxm", 8, "ng-full"),
            shape("gpu.2xsecret", 2, "ng-main", listed=False),
        ]
        self.free_gpus = {"ng-main": 64, "ng-full": 0}
        self.storages = ["default", "lustre"]
        """The volumes of which files are served."""
        self.permissions = {"lustre": [{"path_prefix": "/team", "allowed_users": ["*"]}]}

    def volume(self, name: str) -> Path:
        path = self.root / "volumes" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, body: dict[str, Any]) -> PlayedJob:
        job = PlayedJob(f"{body['metadata']['name']}-{word(4)}", body, time.time())
        job.turn("Starting")
        nodes = int(body["spec"].get("completions") or 1)
        job.workers = [
            Worker(f"{job.id}-{rank}-{word(5)}", rank, f"node-{word(3)}") for rank in range(nodes)
        ]
        self.jobs[job.id] = job
        return job

    def sweep(self) -> None:
        """What is over its time to live goes to the archive."""
        now = time.time()
        for job in self.jobs.values():
            ttl = job.spec.get("ttl_seconds_after_finished")
            over = job.completed and ttl is not None and now - job.completed > ttl
            if over and not job.archived and job.state in ("Completed", "Failed"):
                self.archive(job, "Archived")

    def archive(self, job: PlayedJob, state: str) -> None:
        job.archived = True
        job.turn(state)

    def wanted(self, mode: str) -> list[PlayedJob]:
        self.sweep()
        return [
            job
            for job in self.jobs.values()
            if job.id not in self.forgotten
            and (mode in ALIVE if not job.archived else mode != "alive_only")
        ]

    def _group(self, name: str, label: str, volumes: list[str]) -> dict[str, Any]:
        kinds = {name: "local" if name.endswith("local") else "nfs" for name in volumes}
        listed = [
            {"name": name, "from": kind, "from_path": f"/mnt/{name}", "size_in_gb": 1}
            for name, kind in kinds.items()
        ]
        return {
            "metadata": {"id": name, "name": label},
            "spec": {"volumes": listed, "workspaces": []},
            "status": {"ready_nodes": 2, "quota_enabled": True},
        }
