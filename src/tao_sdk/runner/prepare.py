"""Everything before the command: inputs here, outputs planned, spec written, command complete."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .context import Context
from .destinations import SPEC, Destination, fill_in
from .report import Reporter
from .tasks import OutputTask, Selective, StagingTask, write_paths

if TYPE_CHECKING:
    from .report import Stage


class Prepared(NamedTuple):
    """What the command needs, and what is known about it."""

    command: str
    outputs: Sequence[OutputTask]
    staged: Stage | None = None
    resumed_from: str = ""
    fetched_back: Sequence[str] = ()
    """Files of an earlier attempt that came from the destination."""
    link: str = ""
    """To the spec, alone in a folder."""

    def clean_up(self) -> None:
        """When all is done. The command may have left anything there, or nothing."""
        if self.link:
            import shutil

            shutil.rmtree(os.path.dirname(self.link), ignore_errors=True)


def prepare(
    payload: dict[str, Any], context: Context, to: Destination, reporter: Reporter
) -> Prepared:
    """Do all of it; what is needed by some payloads only is imported where it is needed."""
    mode, command = payload["mode"], payload["command"]
    payload = fill_in(payload, context.env, context.work)
    values: dict[str, Any] = payload["values"]
    names_variables = payload["names_variables"]
    if names_variables:
        from .variables import resolve_env

        for part in ("inputs", "links", "outputs"):
            payload[part] = resolve_env(payload[part], context.env, part)
        values = resolve_env(values, context.env, "specs" if mode == "config" else "args")
    if payload["note"]:
        reporter.warn(payload["note"])
    planned = payload["outputs"]["s3" if to.kind == "s3" else "here"]
    outputs = [OutputTask(**task) for task in planned]
    if mode == "passthrough" and to.kind == "mount":
        outputs = [_to_mount(task, to) for task in outputs]
    inputs, staged = _stage(payload, values, context, reporter)
    write_paths(values, inputs, outputs)
    for task in outputs:
        # Only the command knows what a passthrough output is.
        folder = task.local if task.want == "folder" else os.path.dirname(task.local)
        os.makedirs(folder, exist_ok=True)
    if mode == "passthrough":
        return Prepared(command, outputs, staged)
    if mode == "args":
        from .arguments import build_args_command

        command = build_args_command(command, values, payload["flags"])
        return Prepared(command, outputs, staged)
    resumed_from = ""
    fetched: list[str] = []
    if payload["resumes"]:
        from .resuming import resume

        resumed_from, fetched = resume(values, outputs, context, reporter)
    path = _write_spec(values, payload["config_format"], context, private=names_variables)
    link = _plain_link(path)
    command = command.replace(SPEC, link or path)
    return Prepared(command, outputs, staged, resumed_from, fetched, link)


def _to_mount(task: OutputTask, to: Destination) -> OutputTask:
    """A path outside the mount is lost with the container, so what is there is copied."""
    if task.uri or f"{task.local}/".startswith(os.path.dirname(to.root) + "/"):
        return task
    return task._replace(uri=f"file://{to.root}/{os.path.basename(task.local)}")


def _stage(
    payload: dict[str, Any], values: dict[str, Any], context: Context, reporter: Reporter
) -> tuple[list[tuple[StagingTask, str | None]], Stage | None]:
    """Every input with its local path."""
    if not payload["inputs"] and not payload["links"]:
        return [], None
    from .stage import stage_inputs

    tasks = [
        StagingTask(
            **{**record, "selective": tuple(Selective(**s) for s in record.get("selective", ()))}
        )
        for record in payload["inputs"]
    ]
    paths, stage = stage_inputs(
        tasks, payload["links"], values, context, reporter, payload["mount_path"]
    )
    return list(zip(tasks, paths)), stage


def _write_spec(values: dict[str, Any], fmt: str, context: Context, *, private: bool) -> str:
    """Write the spec, whole at once, since other ranks may read the same file system."""
    from .spec_writer import spec_text

    name = f"spec.{context.rank}.{fmt}" if context.rank else f"spec.{fmt}"
    path = os.path.join(context.work, name)
    draft = f"{path}.{os.getpid()}"
    os.makedirs(context.work, exist_ok=True)
    # Values that came from the environment may be secret.
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o666)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(spec_text(values, fmt))
    os.replace(draft, path)
    return path


def _plain_link(path: str) -> str:
    """Another path of the spec, where its own would mean something to the shell or end quotes."""
    if re.fullmatch(r"[\w@%+=:,./-]+", path, re.ASCII):
        return ""
    import tempfile

    # TMPDIR, too, may hold blanks.
    link = os.path.join(tempfile.mkdtemp(prefix="tao-", dir="/tmp"), os.path.basename(path))
    os.symlink(path, link)
    return link
