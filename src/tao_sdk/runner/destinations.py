"""Where results end up, which only the container's environment tells."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .tasks import OutputTask


class Destination(NamedTuple):
    """What the environment says about results."""

    kind: str
    """mount, s3 or ephemeral."""
    root: str
    """Where the job's results end up: a path, or an s3:// URI."""
    work: str
    """The job's folder in the container; equals `root` unless that is a URI."""


def results_kind(env: Mapping[str, str]) -> str:
    """The row of the table: mount, s3 or ephemeral."""
    if env.get("TAO_RESULTS_ROOT", "").strip():
        return "mount"
    return "s3" if env.get("S3_BUCKET_NAME", "").strip() else "ephemeral"


def destination(env: Mapping[str, str], work: str) -> Destination:
    """Where the results of the job with this folder go; the folder has the job's name."""
    kind = results_kind(env)
    if kind != "s3":
        return Destination(kind, work, work)
    return Destination(kind, f"s3://{_bucket(env)}/results/{posixpath.basename(work)}", work)


def _bucket(env: Mapping[str, str]) -> str:
    return env.get("S3_BUCKET_NAME", "").strip().rpartition("://")[2].strip("/")


# What the client cannot know stands in its plans as these; no path can hold a NUL.
WORK, BUCKET, JOB, SPEC = "\0work", "\0bucket", "\0job", "\0spec"


def fill_in(value: Any, env: Mapping[str, str], work: str) -> Any:
    """A plan of the client with what only the container knows."""
    if isinstance(value, str):
        value = value.replace(WORK, work).replace(BUCKET, _bucket(env))
        return value.replace(JOB, posixpath.basename(work))
    if isinstance(value, list):
        return [fill_in(item, env, work) for item in value]
    if isinstance(value, dict):
        return {fill_in(key, env, work): fill_in(item, env, work) for key, item in value.items()}
    return value


def delivery_note(
    to: Destination, tasks: Sequence[OutputTask], failed: Collection[str] = ()
) -> str:
    """What became of the outputs, for the end of a run; "" where none is declared.

    `failed` holds the URIs that could not be delivered.
    """
    uploads = [task for task in tasks if task.uri]
    staying = [task.local for task in tasks if not task.uri]
    lost = [path for path in staying if to.kind != "mount" and _is_below(path, to.work)]
    notes = []
    if uploads:
        done = [task.uri for task in uploads if task.uri not in failed]
        notes.append(f"uploaded {len(done)}/{len(uploads)} declared outputs")
        notes[0] += f": {', '.join(done)}" if done else ""
    if to.kind == "mount" and any(_is_below(path, to.root) for path in staying):
        notes.append(f"outputs are on the mount: {to.root}")
    elsewhere = [path for path in staying if path not in lost and not _is_below(path, to.root)]
    if elsewhere:
        notes.append(f"kept where the spec says, if that is on a mount: {', '.join(elsewhere)}")
    if lost:
        notes.append(
            f"WARNING: {', '.join(lost)} will NOT survive the container: set S3_BUCKET_NAME, "
            f"mount storage at {posixpath.dirname(to.work)}, or give an s3:// URI as the output"
        )
    return "; ".join(notes)


def _is_below(path: str, job_folder: str) -> bool:
    """In the folder of all jobs: a path such as /results/model.engine is no safer than ours."""
    parent = posixpath.dirname(job_folder).rstrip("/")
    return f"{posixpath.normpath(path)}/".startswith(f"{parent}/")
