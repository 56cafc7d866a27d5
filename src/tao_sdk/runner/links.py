"""Symbolic links to what is in another place of the container than the command expects."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .errors import RunnerError
from .tasks import StagingTask
from .uris import is_archive


def make_links(links: Sequence[Sequence[str]], staged: Sequence[tuple[StagingTask, str]]) -> None:
    """Those to paths that exist anyway, given as (link, source, what asked), and to what came."""
    for link, source, what in links:
        if not os.path.exists(source):
            raise RunnerError(
                f"{what}: there is no {source} in this container: mount it, or correct the path"
            )
        _make_link(link, source)
    for task, path in staged:
        for link in task.links:
            _make_link(link, path)
            if is_archive(link) and os.path.isfile(path):
                from .archives import result_folder

                _make_link(result_folder(link), result_folder(path))


def _make_link(link: str, source: str) -> None:
    if os.path.realpath(link) == os.path.realpath(source):
        return
    if os.path.lexists(link) and not os.path.islink(link):
        raise RunnerError(
            f"inputs: {link} is in the image already: choose another path for {source}"
        )
    os.makedirs(os.path.dirname(link), exist_ok=True)
    # Over the link of an earlier attempt, or of another rank that does the same.
    draft = f"{link}.{os.urandom(4).hex()}"
    os.symlink(source, draft)
    os.replace(draft, link)
