"""Storage that mirrors the store, which several jobs use at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager

from .context import Context
from .staging_lock import staging_turn


def writable_or(mount_path: str, instead: str) -> str:
    """Where notes about a mirror go: onto it, or, if it is read-only, to the job's own folder."""
    folder = os.path.join(mount_path, ".tao", "staged")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    return mount_path if os.access(folder, os.W_OK) else instead


@contextmanager
def hold_turns(
    mirror: str, names: Collection[str], context: Context, say: Callable[[str], None]
) -> Iterator[list[str]]:
    """Hold these turns; gives what was said of waiting for them."""
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        say(text)

    with ExitStack() as stack:
        turns = []
        # In the same order by everybody, so that nobody waits in a circle.
        for name in sorted(names):
            turn = staging_turn(
                os.path.join(mirror, ".tao", "turns", name),
                os.urandom(8).hex(),  # what another did is looked at, never just believed
                rank=context.rank,
                host=f"{os.uname().nodename} of job {context.job_id}",
                wait_seconds=context.stage_wait_seconds,
                say=tell,
            )
            turns.append(stack.enter_context(turn))
        yield said
        for each in turns:
            each.done({})
