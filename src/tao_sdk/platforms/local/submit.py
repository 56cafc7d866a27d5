"""The files of a submission: staged before the supervisor starts, claimed once, settled later."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.local.job_files import JobFolder, LocalJob, write_private
from tao_sdk.platforms.local.observe import reaching
from tao_sdk.platforms.local.orders import StagedFiles


def make_root(root: Path) -> None:
    """Make the folder of all jobs, marked with a name of its own."""
    marker = JobFolder(root / "jobs" / "any").root_marker
    with reaching(root):
        if marker.exists():
            return
        _make_private(root)
        draft = marker.with_name(f"{marker.name}.{os.urandom(8).hex()}")
        write_private(draft, os.urandom(16).hex())
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(draft, marker)
        draft.unlink()


def stage(folder: JobFolder, staged: StagedFiles) -> None:
    """Make the job's files and folders, all or none."""
    try:
        _make_private(folder.path)
        for name, text in staged.files.items():
            path = folder.path / name
            _make_private(path.parent)
            write_private(path, text)
        for results in staged.folders:
            results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        unstage(folder, staged)
        raise SubmissionRejectedError(
            f"cannot make {error.filename or folder.path}: {error.strerror}; nothing was started. "
            "Choose another folder: results_root= for results, work_dir= of the SDK for the rest"
        ) from error


def unstage(folder: JobFolder, staged: StagedFiles) -> None:
    """Remove what `stage` made, for a job that never started."""
    remove_tree(folder.path, ignore_errors=True)
    for results in reversed(staged.folders):
        with contextlib.suppress(OSError):  # not made, or not empty
            results.rmdir()


def settle(job: LocalJob) -> bool:
    """True if a supervisor has claimed the job; False if none ever can, from now on.

    A process that was killed while it settled the job may have left any of these steps to us.
    """
    folder = job.folder
    abandoned = folder.path.with_name(f".abandoned-{job.job_id}")
    with reaching(folder.root):
        if folder.path.is_dir():
            if not _forbid_start(folder):
                return True
            # In one step, so that a late supervisor never finds the folder without the claim.
            folder.path.rename(abandoned)
    remove_tree(abandoned, ignore_errors=True)
    with contextlib.suppress(OSError):
        job.results.rmdir()
    return False


def _forbid_start(folder: JobFolder) -> bool:
    """Make the claim, so that a supervisor that comes later finds it taken; False if one has it."""
    draft = folder.path / f"fence.{os.getpid()}"
    write_private(draft, json.dumps({"abandoned": True}))
    try:
        os.link(draft, folder.claim)
    except FileExistsError:
        return "abandoned" in (folder.read_claim() or {})
    finally:
        draft.unlink()
    return True


def remove_tree(path: Path, *, ignore_errors: bool = False) -> None:
    import shutil  # here, because it brings every kind of compression with it

    shutil.rmtree(path, ignore_errors)


def _make_private(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
