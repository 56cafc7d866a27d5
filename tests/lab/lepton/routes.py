"""What the server answers to each documented request."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.lepton.engine import Engine
from lab.lepton.faults import Faults
from lab.lepton.state import PlayedJob, State, Worker

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_RESERVED = ("LEPTON_WORKSPACE_ID", "LEPTON_DEPLOYMENT_NAME", "LEPTON_JOB_NAME")
_ENV_NAME = re.compile(r"[A-Za-z._-][A-Za-z0-9._-]*")


@dataclass
class Asked:
    """A request."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    body: Any = None

    def one(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]


@dataclass
class RefusedError(Exception):
    """An answer that is no success."""

    status: int
    message: str


@dataclass
class Answered:
    """An answer: a body, the log of a worker as it comes (`follow`), or a file."""

    body: Any = None
    status: int = 200
    follow: Worker | None = field(default=None, repr=False)
    file: Path | None = None
    """A file to be sent."""


class Routes:
    """Requests to one workspace."""

    def __init__(self, state: State, engine: Engine, faults: Faults) -> None:
        self._state = state
        self._engine = engine
        self._faults = faults
        self._table: list[tuple[str, re.Pattern[str], Callable[..., Answered]]] = [
            (method, re.compile(pattern), answer)
            for method, pattern, answer in (
                ("GET", "", self._info),
                ("GET", "/workspace", self._info),
                ("GET", "/tokens", lambda _: Answered([])),
                ("POST", "/jobs", self._create),
                ("GET", "/jobs", self._list),
                ("GET", "/jobs/([^/]+)", self._get),
                ("PATCH", "/jobs/([^/]+)", self._patch),
                ("DELETE", "/jobs/([^/]+)", self._delete),
                ("GET", "/jobs/([^/]+)/events", self._events),
                ("GET", "/jobs/([^/]+)/replicas", self._replicas),
                ("GET", "/jobs/([^/]+)/replicas/([^/]+)/log", self._live),
                ("GET", "/jobs/([^/]+)/failure-analysis", self._analysis),
                ("GET", "/logs", self._logs),
                ("GET", "/dedicated-node-groups", self._groups),
                ("GET", "/shapes", self._shapes),
                ("GET", "/storage-permission/([^/]+)", self._permissions),
                ("GET", "/storage", self._storages),
                ("GET", "/storage/([^/]+)(/(?s:.)*)?", self._stored),
                ("HEAD", "/storage/([^/]+)(/(?s:.)*)?", self._stored),
                ("GET", "/imagepullsecrets", self._pull_secrets),
                ("POST", "/imagepullsecrets", self._make_pull_secret),
                ("GET", "/usersecrets", self._secrets),
                ("POST", "/usersecrets", self._make_secrets),
                ("DELETE", "/usersecrets/([^/]+)", self._remove_secret),
            )
        ]

    def answer(self, asked: Asked) -> Answered:
        with self._state.lock:
            for method, pattern, handler in self._table:
                found = pattern.fullmatch(asked.path)
                if found and method == asked.method:
                    return handler(asked, *found.groups())
        raise RefusedError(404, f"no route {asked.method} {asked.path}")

    # ------------------------------------------------------------------ jobs

    def _create(self, asked: Asked) -> Answered:
        body = asked.body
        metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
        name = str(metadata.get("name") or "")
        if not _NAME.fullmatch(name) or len(name) > 36 or name.endswith(("-", "by-lepton")):
            raise RefusedError(400, f"invalid job name {name!r}")
        if any(len(key) > 63 for key in metadata.get("labels") or {}):
            raise RefusedError(400, "a label's key is too long")
        if not (spec.get("container") or {}).get("command"):
            raise RefusedError(400, "container.command is required")
        shapes = {one["metadata"]["id"] for one in self._state.shapes}
        if spec.get("resource_shape") and spec["resource_shape"] not in shapes:
            raise RefusedError(400, f"unknown resource shape {spec['resource_shape']}")
        for one in spec.get("envs") or ():
            if one["name"] in _RESERVED or not _ENV_NAME.fullmatch(one["name"]):
                raise RefusedError(400, f"reserved or invalid environment variable {one['name']}")
        for pull in spec.get("image_pull_secrets") or ():
            if pull not in self._state.pull_secrets:
                raise RefusedError(400, f"image pull secret {pull} not found")
        job = self._state.add(body)
        self._engine.start(job)
        return Answered(job.describe(), 201)

    def _list(self, asked: Asked) -> Answered:
        mode = asked.one("job_query_mode", "alive_only")
        if mode not in ("alive_only", "archive_only", "alive_and_archive"):
            raise RefusedError(400, f"invalid job_query_mode {mode}")
        lag = self._faults.list_lag
        then = time.time() - lag
        found = [job for job in self._state.wanted(mode) if job.created <= then]
        if q := asked.one("q"):
            found = [job for job in found if q in job.body["metadata"]["name"]]
        if selector := asked.one("query"):
            wanted = dict(part.split("=", 1) for part in selector.split(","))
            found = [job for job in found if wanted.items() <= job.labels.items()]
        if states := asked.query.get("status"):
            found = [job for job in found if job.seen(lag) in states]
        found.sort(key=lambda job: job.created, reverse=True)
        size = min(int(asked.one("page_size", "100")), self._faults.page_limit)
        begin = (int(asked.one("page", "1")) - 1) * size
        page = [job.describe(lag) for job in found[begin : begin + size]]
        return Answered({"jobs": page, "total": len(found)})

    def _get(self, asked: Asked, job_id: str) -> Answered:
        return Answered(self._job(asked, job_id).describe(self._faults.list_lag))

    def _patch(self, asked: Asked, job_id: str) -> Answered:
        job = self._job(asked, job_id)
        stopped = (asked.body.get("spec") or {}).get("stopped")
        if stopped and job.state not in ("Completed", "Failed", "Stopped"):
            job.spec["stopped"] = True
            job.stop.set()
            if not self._engine.runs:
                job.completed = time.time()
                job.turn("Stopped")
        return Answered(job.describe())

    def _delete(self, asked: Asked, job_id: str) -> Answered:
        job = self._job(asked, job_id)
        job.stop.set()
        self._state.archive(job, "Deleted")
        return Answered({})

    def _events(self, asked: Asked, job_id: str) -> Answered:
        return Answered(self._job(asked, job_id, "alive_and_archive").events)

    def _replicas(self, asked: Asked, job_id: str) -> Answered:
        job = self._job(asked, job_id)
        return Answered([worker.describe(job.group) for worker in job.workers])

    def _live(self, asked: Asked, job_id: str, worker_id: str) -> Answered:
        job = self._job(asked, job_id)
        for worker in job.workers:
            if worker.id == worker_id:
                return Answered(follow=worker)
        raise RefusedError(404, f"replica {worker_id} not found")

    def _analysis(self, asked: Asked, job_id: str) -> Answered:
        job = self._job(asked, job_id, "alive_and_archive")
        if job.analysis is None:
            raise RefusedError(404, "no failure analysis for this job")
        return Answered(job.analysis)

    def _job(self, asked: Asked, job_id: str, mode: str = "") -> PlayedJob:
        mode = mode or asked.one("job_query_mode", "alive_only")
        self._state.sweep()
        job = self._state.jobs.get(job_id)
        if job is None or job not in self._state.wanted(mode):
            raise RefusedError(404, f"job {job_id} not found")
        return job

    # ------------------------------------------------------------------ logs

    def _logs(self, asked: Asked) -> Answered:
        job = self._state.jobs.get(asked.one("job"))
        start, end = int(asked.one("start", "0")), int(asked.one("end", "0"))
        if bool(start) != bool(end) or (start and end <= start):
            raise RefusedError(400, "start and end: both or neither, and end after start")
        limit = min(int(asked.one("limit", "5000")), 5000)
        newest = time.time_ns() - int(self._faults.log_lag * 1e9)
        streams = []
        for worker in job.workers if job else ():
            if asked.one("replica") not in ("", worker.id):
                continue
            lines = [
                (at, text)
                for at, text in list(worker.lines)
                if at <= newest and (not start or start <= at < end) and asked.one("q") in text
            ]
            streams.append((worker, lines))
        backward = asked.one("direction", "backward") == "backward"
        flat = sorted(
            (
                (at, n, rank)
                for rank, (_, lines) in enumerate(streams)
                for n, (at, _) in enumerate(lines)
            ),
            reverse=backward,
        )[:limit]
        result = []
        for rank, (worker, lines) in enumerate(streams):
            chosen = [n for _, n, of in flat if of == rank]
            values = [[str(lines[n][0]), lines[n][1]] for n in chosen]
            if values:
                result.append({"stream": {"replica": worker.id}, "values": values})
        return Answered({"status": "success", "data": {"resultType": "streams", "result": result}})

    # ------------------------------------------------------------------ the rest

    def _info(self, _: Asked) -> Answered:
        return Answered({"workspace_name": "played", "workspace_state": "normal"})

    def _groups(self, _: Asked) -> Answered:
        return Answered(self._state.groups)

    def _shapes(self, asked: Asked) -> Answered:
        groups = asked.query.get("node_groups")
        return Answered(
            [
                one
                for one in self._state.shapes
                if not groups or one["spec"]["node_group_id"] in ("", *groups)
            ]
        )

    def _permissions(self, _: Asked, volume: str) -> Answered:
        if volume not in self._state.permissions:
            raise RefusedError(404, f"no permissions for {volume}")
        return Answered(self._state.permissions[volume])

    def _storages(self, _: Asked) -> Answered:
        return Answered(
            [
                {"metadata": {"id": name, "name": name}, "status": {"total_usage_bytes": 1}}
                for name in self._state.storages
            ]
        )

    def _stored(self, _: Asked, volume: str, path: str | None) -> Answered:
        """A folder as a list of what is in it, or a file."""
        if volume not in self._state.storages:
            raise RefusedError(404, f"file system {volume} not found")
        if ".." in (path or "").split("/"):
            raise RefusedError(400, "invalid path")
        place = self._state.volume(volume) / (path or "").strip("/")
        if place.is_file():
            return Answered(file=place)
        if not place.is_dir():
            raise RefusedError(404, f"{path} not found")
        listed = sorted(place.iterdir())
        return Answered(
            [
                {
                    "type": "dir" if each.is_dir() else "file",
                    "name": each.name,
                    "path": f"{(path or '').rstrip('/')}/{each.name}",
                }
                for each in listed
            ]
        )

    def _pull_secrets(self, _: Asked) -> Answered:
        return Answered(
            [{"metadata": {"id": name, "name": name}} for name in self._state.pull_secrets]
        )

    def _make_pull_secret(self, asked: Asked) -> Answered:
        name = asked.body["metadata"]["id"]
        if name in self._state.pull_secrets:
            raise RefusedError(409, f"image pull secret {name} exists")
        self._state.pull_secrets[name] = asked.body["spec"]
        return Answered({}, 201)

    def _secrets(self, _: Asked) -> Answered:
        seen = () if self._faults.secrets_unseen else self._state.secrets
        return Answered([{"name": name} for name in seen])

    def _make_secrets(self, asked: Asked) -> Answered:
        for one in asked.body:
            if one["name"] in self._state.secrets or not one.get("value"):
                raise RefusedError(409 if one.get("value") else 400, f"secret {one['name']}")
        self._state.secrets |= {one["name"]: one["value"] for one in asked.body}
        return Answered({}, 201)

    def _remove_secret(self, _: Asked, name: str) -> Answered:
        if self._state.secrets.pop(name, None) is None:
            raise RefusedError(404, f"secret {name} not found")
        return Answered({})


def parse_body(data: bytes) -> Any:
    try:
        return json.loads(data) if data else {}
    except ValueError:
        raise RefusedError(400, "the body is not JSON") from None
