"""Which file of a model repository the command wants."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tasks import StagingTask

SINGLE_FILE_MODELS = (".pth", ".pth.tar", ".pt", ".ckpt", ".hdf5", ".tlt")


def pretrained_result(task: StagingTask, names: Iterable[str]) -> str:
    """The path for the command once the files of a model repository are there.

    The checkpoint, where the model is one file: at the top of the repository, or deeper down if
    no `config.json` at the top says that the folder itself is the model. Otherwise, and when a
    folder is wanted, the folder.
    """
    files = sorted(names, key=lambda name: (name.count("/"), name))
    models = [name for name in files if name.endswith(SINGLE_FILE_MODELS)]
    if not models or task.want == "folder" or ("/" in models[0] and "config.json" in files):
        return task.target
    return posixpath.join(task.target, models[0])
