"""What the runner learns from its environment, read once and checked."""

from __future__ import annotations

import os
import re
from typing import Mapping, NamedTuple

from .errors import RunnerError
from .uris import local_path

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class Context(NamedTuple):
    """One rank of one attempt of one job."""

    env: Mapping[str, str]
    job_id: str
    rank: int
    attempt: int
    work: str
    """The job's own folder: inputs, results, spec."""
    grace_seconds: float
    delivery_seconds: float
    sync_seconds: float
    stage_wait_seconds: float
    threads: int

    @property
    def private(self) -> str:
        """Where locks and markers are; never delivered."""
        return os.path.join(self.work, ".tao")


def is_job_id(text: str) -> bool:
    """Is this safe as the name of a file, a container and a label?"""
    return _JOB_ID.fullmatch(text) is not None


def read_context(env: Mapping[str, str]) -> Context:
    """The context that these variables describe."""
    job_id = env.get("TAO_JOB_ID", "").strip() or _new_id()
    if not is_job_id(job_id):
        raise RunnerError(
            f"TAO_JOB_ID={job_id!r} is not a job id: letters, digits, '_', '.' and '-' only, "
            "starting with a letter or digit"
        )
    return Context(
        env=env,
        job_id=job_id,
        rank=int(read_number(env, "NODE_RANK", 0)),
        attempt=int(read_number(env, "TAO_ATTEMPT", 1)),
        work=os.path.join(_root(env), job_id),
        grace_seconds=read_number(env, "TAO_GRACE_SECONDS", 10),
        delivery_seconds=read_number(env, "TAO_DELIVERY_SECONDS", 120),
        sync_seconds=read_number(env, "TAO_SYNC_SECONDS", 30),
        stage_wait_seconds=read_number(env, "TAO_STAGE_WAIT_SECONDS", 7200),
        threads=max(1, int(read_number(env, "TAO_TRANSFER_THREADS", 64))),
    )


def _new_id() -> str:
    import uuid

    return str(uuid.uuid4())


def _root(env: Mapping[str, str]) -> str:
    for name in ("TAO_RESULTS_ROOT", "TAO_WORK_ROOT"):
        value = env.get(name, "").strip()
        if value and not value.startswith("/") and "://" not in value:
            raise RunnerError(f"{name}={value!r} must be an absolute path")
        if value:
            return os.path.normpath(local_path(value))
    return "/results"


def read_number(env: Mapping[str, str], name: str, default: float) -> float:
    """A variable that is 0 or more."""
    text = env.get(name, "").strip()
    try:
        value = float(text) if text else float(default)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise RunnerError(f"{name}={text!r} is not a number: give 0 or more")
    return value
