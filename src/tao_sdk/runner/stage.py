"""Bring the inputs: list what the URIs stand for, fetch everything at once, unpack, prove.

All files of all inputs share the same connections, so a large one hides the waiting for many
small ones. What an earlier attempt brought is listed again and compared, not fetched again.

Storage that mirrors the store is used by several jobs. Who fetches and unpacks there has the turn
of that target; the others wait, list again, and compare with the marker that it left.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from .context import Context
from .errors import NotFoundError, RunnerError
from .notes import read_note, write_note
from .remote import Listing, RemoteFile
from .report import Reporter, Stage
from .tasks import StagingTask, local_result
from .uris import MOST_STEPS, is_archive, scheme_of


def stage_inputs(
    tasks: Sequence[StagingTask],
    links: Sequence[Sequence[str]],
    values: Mapping[str, Any],
    context: Context,
    reporter: Reporter,
    mount_path: str,
) -> tuple[list[str | None], Stage | None]:
    """Fetch everything, or wait for the rank of this file system that does.

    Gives the path of each task, None for an optional one that the store does not have; and what
    moved, unless another rank moved it.
    """
    paths: list[str | None] = []
    stage = None
    if tasks:
        staging = _Staging(tasks, values, context, reporter, mount_path)
        _stage_or_await(staging, tasks, context, reporter)
        paths, stage = staging.paths(), staging.stage
    if links or any(task.links for task in tasks):
        from .links import make_links

        make_links(links, [(task, path) for task, path in zip(tasks, paths) if path])
    return paths, stage


def _stage_or_await(
    staging: _Staging, tasks: Sequence[StagingTask], context: Context, reporter: Reporter
) -> None:
    from .staging_lock import staging_turn

    digest = _digest([context.job_id, context.attempt, *(task[:2] for task in tasks)])
    with staging_turn(
        context.private,
        digest,
        rank=context.rank,
        host=os.uname().nodename,
        attempt=context.attempt,
        wait_seconds=context.stage_wait_seconds,
        say=reporter.say,
    ) as turn:
        if turn.mine:
            turn.done({"paths": staging.run()})
        else:
            staging.adopt(turn.result["paths"])
        if staging.stage is not None:
            staging.stage.done()


class _Staging:
    """One rank's work."""

    def __init__(
        self,
        tasks: Sequence[StagingTask],
        values: Mapping[str, Any],
        context: Context,
        reporter: Reporter,
        mount_path: str,
    ) -> None:
        self.stage: Stage | None = None
        """What moved, if anything had to."""
        self._tasks = tasks
        self._values = values
        self._context = context
        self._reporter = reporter
        self._mount_path = mount_path
        self._paths: dict[str, str | None] = {}
        self._claims: dict[str, RemoteFile] = {}
        self._mirror = mount_path
        if mount_path:
            from .mirror import writable_or

            self._mirror = writable_or(mount_path, context.work)

    def paths(self) -> list[str | None]:
        """Local paths, in the order of the plan's tasks."""
        return [self._paths[_key(task)] for task in self._tasks]

    def run(self) -> list[str | None]:
        """Bring everything."""
        self._bring(self._tasks)
        return self.paths()

    def adopt(self, paths: Sequence[str | None]) -> None:
        """Take over what another rank staged; what it put onto its own disk comes here, too."""
        self._paths = {_key(task): path for task, path in zip(self._tasks, paths)}
        missing = [
            task
            for task, path in zip(self._tasks, paths)
            if path and not _is_whole(task, path, self._read_marker(task))
        ]
        if missing:
            self._reporter.say(f"{missing[0].uri} was staged elsewhere, and comes here as well")
            self._bring(missing)

    def _bring(self, tasks: Sequence[StagingTask]) -> None:
        self.stage = self._reporter.stage("staging", bytes_total=0, files_total=0)
        # What an annotation file selects cannot be chosen before that file is here.
        self._fetch([task for task in tasks if not task.selective], self.stage)
        self._fetch([task for task in tasks if task.selective], self.stage)

    def _fetch(self, tasks: Sequence[StagingTask], stage: Stage) -> None:
        wanted = self._wanted(tasks)
        self._claim(wanted)
        missing = [each for each in wanted if not self._is_there(each)]
        shared = [each.task for each in missing if self._is_shared(each.task)]
        with self._turns(shared) as has_waited:
            if has_waited:
                missing = self._wanted([each.task for each in missing])
            if shared:
                missing = [each for each in missing if not self._is_there(each)]
            ours = {
                target
                for each in missing
                for _, target in each.archives
                if not os.path.lexists(target)
            }
            for each in missing:
                self._remove_leftovers(each)
                nbytes = sum(max(0, file.size) for file in each.listing.files)
                stage.expect(nbytes, len(each.listing.files), each.task.uri)
            # Several inputs may want the same file in the same place.
            pairs = {target: file for each in missing for file, target in each.pairs}
            from .download import download_all, download_by_processes

            # Only the requests for these are made without asking anybody over a connection.
            is_s3 = all(file.uri.startswith("s3:") for file in pairs.values())
            download = download_by_processes if is_s3 else download_all
            files = [(file, target) for target, file in pairs.items()]
            download(files, stage, threads=self._context.threads)
            for each in missing:
                for folder in each.listing.folders:
                    os.makedirs(os.path.join(each.task.target, folder), exist_ok=True)
                self._conclude(each, ours)

    def _wanted(self, tasks: Sequence[StagingTask]) -> list[_Wanted]:
        wanted = []
        for task, listing in zip(tasks, self._list_all(tasks)):
            if listing is None:
                self._paths[_key(task)] = None
            else:
                wanted.append(_wanted(task, self._chosen(task, listing)))
        return wanted

    def _turns(self, tasks: Sequence[StagingTask]) -> AbstractContextManager[Sequence[str]]:
        """Hold the turns of these on the mirror; gives what was said of waiting for them."""
        if not tasks:
            return nullcontext(())
        from .mirror import hold_turns

        names = {_digest(task.target) for task in tasks}
        return hold_turns(self._mirror, names, self._context, self._reporter.say)

    def _claim(self, wanted: Sequence[_Wanted]) -> None:
        """Two inputs may bring the same file to one place, but not two files."""
        for file, target in (pair for each in wanted for pair in each.pairs):
            other = self._claims.setdefault(target, file)
            if (other.uri, other.fingerprint) != (file.uri, file.fingerprint):
                raise RunnerError(
                    f"inputs: {other.uri} and {file.uri} would both be put at {target}: give one "
                    "of them another place"
                )

    def _list_all(self, tasks: Sequence[StagingTask]) -> list[Listing | None]:
        """What the URIs stand for, asked all at once; None for an optional one not there."""
        from .parallel import run_all

        found: dict[int, Listing | None] = {}

        def ask(index: int, task: StagingTask) -> None:
            try:
                found[index] = list_uri(task.uri, self._context.env, task.want)
            except RunnerError as error:
                if not (task.optional and isinstance(error, NotFoundError)):
                    # A bucket that is missing says so about itself.
                    where = "" if task.uri in str(error) else f"{task.uri}: "
                    raise type(error)(f"{where}{error}") from error
                self._reporter.say(f"{error} (the input is optional: left out)")
                found[index] = None

        def questions() -> Iterator[Any]:
            for index, task in enumerate(tasks):
                yield lambda index=index, task=task: ask(index, task)

        run_all(questions(), min(len(tasks), self._context.threads), threading.Event())
        return [found[index] for index in range(len(tasks))]

    def _chosen(self, task: StagingTask, listing: Listing) -> Listing:
        """The listing without what the input does not want."""
        files = listing.files
        if task.pattern:
            files = tuple(file for file in files if fnmatch.fnmatchcase(file.path, task.pattern))
            if not files:
                raise NotFoundError(f"{listing.uri}: nothing matches {task.pattern}")
        if task.selective and listing.is_folder:
            from .selective import referenced_names

            staged = [(known, self._paths.get(_key(known))) for known in self._tasks]
            names = referenced_names(task, [f.path for f in files], staged, self._values)
            files = tuple(file for file in files if file.path in names)
        return listing._replace(files=files) if files != listing.files else listing

    # ------------------------------------------------------------------ proof

    def _is_there(self, wanted: _Wanted) -> bool:
        """Did an earlier attempt, or another job, bring exactly this? Then its result is noted."""
        marker, result = self._read_marker(wanted.task), wanted.result()
        if marker.get("digest") != wanted.digest or not _is_whole(wanted.task, result, marker):
            return False
        self._paths[_key(wanted.task)] = result
        self._reporter.say(f"{wanted.task.uri} is here already: {result}")
        return True

    def _read_marker(self, task: StagingTask) -> dict[str, Any]:
        marker: dict[str, Any] = {}
        # A mirror that cannot be written to may still have one.
        for root in dict.fromkeys((self._mount_path or self._context.work, self._root(task))):
            note = read_note(_marker(root, task), ours=True)
            marker = note if _is_marker(task, note) else marker
        return marker

    def _remove_leftovers(self, wanted: _Wanted) -> None:
        """What an earlier attempt brought and the store no longer has, and what it began."""
        from .partial_file import sweep

        targets = {target for _, target in wanted.pairs}
        before = self._read_marker(wanted.task).get("files", {})
        for path in set(before) - targets:
            if size_of(path) == before[path] >= 0 and not _is_through_link(wanted.task, path):
                os.unlink(path)
        if not self._is_shared(wanted.task):
            for folder in filter(os.path.isdir, {os.path.dirname(path) for path in targets}):
                sweep(folder, os.listdir(folder), older_than=0)

    def _conclude(self, wanted: _Wanted, ours: Container[str]) -> None:
        """Unpack, note the result, and leave the proof that it is whole."""
        archives = self._unpacked(wanted, ours)
        marker = {
            "digest": wanted.digest,
            "files": {
                target: size_of(target) if file.size < 0 or target in archives else file.size
                for file, target in wanted.pairs
            },
            "archives": archives,
        }
        path = _marker(self._root(wanted.task), wanted.task)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_note(path, marker)
        self._paths[_key(wanted.task)] = wanted.result()

    def _unpacked(self, wanted: _Wanted, ours: Container[str]) -> dict[str, str]:
        """The archives, now unpacked, with what stands for their content.

        An archive goes unless somebody else has use for it: the owner of a file that was here
        before, other jobs with the same mirror, a command that names the archive itself.
        """
        task = wanted.task
        archives: dict[str, str] = {}
        if not wanted.archives:
            return archives
        from .archives import extract_beside

        is_shared = self._is_shared(task)
        for file, target in wanted.archives:
            archives[target] = file.fingerprint or str(file.size)
            extract_beside(
                target,
                archives[target],
                keep=is_shared or wanted.is_named or target not in ours,
                into_parent=task.extract_to_parent,
                shared=is_shared,
                say=self._reporter.warn,
            )
        return archives

    def _root(self, task: StagingTask) -> str:
        """Where its marker goes: on a mount that several jobs use, the next job finds it, too."""
        return self._mirror if self._is_shared(task) else self._context.work

    def _is_shared(self, task: StagingTask) -> bool:
        """Does it go to storage that mirrors the store?"""
        mount = self._mount_path.rstrip("/") + "/"
        return bool(self._mount_path) and task.target.startswith(mount)


class _Wanted(NamedTuple):
    """An input whose files are known."""

    task: StagingTask
    listing: Listing

    pairs: list[tuple[RemoteFile, str]]
    """Its files, and where they go."""
    archives: list[tuple[RemoteFile, str]]
    """Those that are unpacked."""
    digest: str

    @property
    def is_named(self) -> bool:
        """Whether the command names the file itself, not a place of the spec."""
        return not self.task.keys and not self.listing.is_folder

    def result(self) -> str:
        """The path for the command, once everything is there and unpacked."""
        names = [file.path for file in self.listing.files]
        if self.archives and not (self.listing.is_folder or self.is_named):
            from .archives import result_folder

            return result_folder(self.archives[-1][1], self.task.extract_to_parent)
        if self.listing.is_folder and self.task.pretrained:
            from .pretrained import pretrained_result

            return pretrained_result(self.task, names)
        return local_result(self.task, self.listing.is_folder, names[0] if names else "")


def _wanted(task: StagingTask, listing: Listing) -> _Wanted:
    if listing.is_folder:
        pairs = [(file, _confined(task, file)) for file in listing.files]
    else:
        pairs = [(file, local_result(task, False, file.path)) for file in listing.files]
    archives = [pair for pair in pairs if task.extract and is_archive(pair[1])]
    digest = _digest([task.uri, *(file[:4] for file in listing.files)])
    return _Wanted(task, listing, pairs, archives, digest)


def _confined(task: StagingTask, file: RemoteFile) -> str:
    """Where a file of a folder goes; a store may say anything about names."""
    path = os.path.normpath(file.path)
    if path.startswith(("/", "../")) or path == "..":
        raise RunnerError(
            f"{file.uri}: its name leads out of {task.target}: rename it in the store"
        )
    if path.count("/") > MOST_STEPS:
        raise RunnerError(
            f"{file.uri}: it is more than {MOST_STEPS} folders deep: move it in the store"
        )
    return os.path.join(task.target, path)


def list_uri(uri: str, env: Mapping[str, str], want: str = "") -> Listing:
    """What a URI that has to be fetched stands for."""
    scheme = scheme_of(uri)
    if scheme == "s3":
        from .s3 import S3

        return S3.from_environment(env).listing(uri, want)
    if scheme == "ngc":
        from . import ngc

        return ngc.listing(uri, env)
    from . import hub

    return hub.listing(uri, env)


def _key(task: StagingTask) -> str:
    """What tells a task from all others."""
    return _digest([task.uri, task.target, task.pattern, task.selective])


def _marker(root: str, task: StagingTask) -> str:
    return os.path.join(root, ".tao", "staged", _key(task) + ".json")


def _is_marker(task: StagingTask, note: Mapping[str, Any]) -> bool:
    """Whether a note has the form of a marker, and speaks of files of the task's target only."""
    files, archives = note.get("files"), note.get("archives")
    return (
        isinstance(files, dict)
        and isinstance(archives, dict)
        and all(type(size) is int for size in files.values())
        and all(isinstance(digest, str) for digest in archives.values())
        and all(_is_below(task, path) for path in (*files, *archives))
    )


def _is_below(task: StagingTask, path: str) -> bool:
    below = path.startswith(task.target.rstrip("/") + "/") and os.pardir not in path.split("/")
    return path == task.target or below


def _is_through_link(task: StagingTask, path: str) -> bool:
    """Whether a folder between the target and the file is a link, which may lead anywhere."""
    top = os.path.dirname(task.target)
    below = os.path.relpath(os.path.dirname(path), top)
    real = os.path.normpath(os.path.join(os.path.realpath(top), below))
    return os.path.realpath(os.path.dirname(path)) != real


def _is_whole(task: StagingTask, result: str, marker: Mapping[str, Any]) -> bool:
    """Is there such a marker, the result, and all that the marker speaks of?"""
    if not marker or not (task.pattern or os.path.exists(result)):
        return False
    if marker.get("archives"):
        from .archives import extracted_folder

        for path, digest in marker["archives"].items():
            if extracted_folder(path, digest, into_parent=task.extract_to_parent) is None:
                return False
    return all(size_of(path) == size for path, size in marker["files"].items())


def size_of(path: str) -> int:
    """-1 where there is no such file (an archive that was unpacked, for one)."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
