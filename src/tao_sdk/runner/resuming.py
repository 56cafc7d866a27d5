"""Bring an earlier attempt's newest whole checkpoint into an empty place of the spec."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .checkpoint_integrity import is_whole
from .errors import NotFoundError
from .resume import (
    Candidate,
    StoredFile,
    choose_remote,
    fill_checkpoint,
    find_resume_checkpoint,
    wants_checkpoint,
)

if TYPE_CHECKING:
    from .context import Context
    from .remote import RemoteFile
    from .report import Reporter
    from .tasks import OutputTask

_OTHER_RANK = re.compile(r"rank\d+/")


def resume(
    values: dict[str, Any], outputs: Sequence[OutputTask], context: Context, reporter: Reporter
) -> tuple[str, list[str]]:
    """The checkpoint that the spec now names, or "", and the files that were fetched for it."""
    if not wants_checkpoint(values, context.env):
        return "", []
    folders = [task.local for task in outputs if task.want == "folder"]
    exclude = [os.path.join(context.work, name) for name in ("inputs", "ptm", ".tao")]
    fetched: list[str] = []
    checkpoint = find_resume_checkpoint(folders, exclude=exclude, say=reporter.say)
    if checkpoint is None:
        for task in outputs:
            if task.want == "folder" and task.uri.startswith("s3://"):
                checkpoint, fetched = _fetch_back(task, context, reporter)
                if checkpoint:
                    break
    if not checkpoint:
        return "", []
    places = fill_checkpoint(values, checkpoint)
    reporter.say(f"resuming from {checkpoint} ({', '.join(places)})")
    return checkpoint, fetched


def _fetch_back(
    task: OutputTask, context: Context, reporter: Reporter
) -> tuple[str | None, list[str]]:
    """The newest whole checkpoint at an output's destination, brought to where it was written."""
    from .stage import list_uri

    try:
        files = list_uri(task.uri, context.env, "folder").files
    except NotFoundError:
        return None, []  # the first attempt
    by_path = {file.path: file for file in files if not _OTHER_RANK.match(file.path)}
    stored = [StoredFile(file.path, file.size) for file in by_path.values()]
    for candidate in choose_remote(stored):
        paths = _download(candidate, by_path, task, context, reporter)
        checkpoint = os.path.join(task.local, candidate.path).rstrip("/")
        if is_whole(checkpoint):
            return checkpoint, paths
        reporter.say(f"not resumed from {task.uri}/{candidate.path}: it is not whole")
        for path in paths:
            os.unlink(path)
    return None, []


def _download(
    candidate: Candidate,
    by_path: dict[str, RemoteFile],
    task: OutputTask,
    context: Context,
    reporter: Reporter,
) -> list[str]:
    from .download import download_all

    pairs = [(by_path[path], os.path.join(task.local, path)) for path in candidate.files]
    stage = reporter.stage(
        "staging",
        bytes_total=sum(file.size for file, _ in pairs),
        files_total=len(pairs),
        uri=pairs[0][0].uri,
    )
    download_all(pairs, stage, threads=context.threads)
    stage.done()
    return [path for _, path in pairs]
