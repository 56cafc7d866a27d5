"""Where results can lie: the seam, and finding the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.results.outcomes import Outcome

PERMISSIONS = 0o777
"""The part of a mode that is kept: without set-user-ID, set-group-ID and sticky bits."""

Advance = Callable[[int], None]
"""Is told how many bytes have come; negative ones have to come again."""


class Kind(str, Enum):
    """What an entry is, as far as fetching is concerned."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    UNFIT = "unfit"
    """Not copied, for a reason that lies in what it is: a pipe, a link to somewhere else."""
    UNREADABLE = "unreadable"
    """Should be copied and cannot be."""


@dataclass(frozen=True)
class Entry:
    """One name in the results, as it was when the folder was listed."""

    path: str
    """Relative to the results, with "/"."""
    kind: Kind
    size: int = 0
    mtime_ns: int = 0
    mode: int | None = None
    """None where nothing is known of it: then it is that of new files."""
    target: str = ""
    """Of a link: where it leads, relative to its own folder."""
    problem: str = ""
    """Why it cannot be copied."""


Copies = Sequence[tuple[Entry, Path]]
"""Files of the results, each with what may be a copy of it on this machine."""


class Fetched(NamedTuple):
    """A file of the results that is here now, or why it is not."""

    entry: Entry
    """As it was when it was fetched."""
    part: Path | None
    """Its content, whole, to be moved away before the next one is asked for."""
    digest: str = ""
    """SHA-256 of what was read, where that was asked for and is known."""
    problem: Outcome | None = None


class ResultSource(Protocol):
    """A place that holds the results of one job."""

    @property
    def address(self) -> str:
        """The place, for people."""
        ...

    def entries(self) -> Iterator[Entry]:
        """Everything below, folders before what is in them."""
        ...

    def fetch(
        self, entries: Sequence[Entry], folder: Path, advance: Advance, *, digests: bool
    ) -> Iterator[Fetched]:
        """Bring files to a folder of the caller's; each entry once, with a part or a problem.

        What is left in the folder when this is broken off may help the next time.
        """
        ...

    def same_content(self, copies: Copies) -> set[str]:
        """The paths of those whose copies surely have the same content."""
        ...

    def holds(self, folder: Path) -> bool:
        """Whether that folder of this machine lies in the results themselves."""
        ...

    def all_fetched(self) -> None:
        """Be told that everything has been fetched, and lies where it was wanted."""
        ...


def open_results(results_dir: str, local_results_dir: str) -> ResultSource:
    """The results of a job by the two addresses that its record has."""
    from tao_sdk.results.local_source import LocalResults

    place = local_results_dir or results_dir
    scheme, separator, rest = place.partition("://")
    if separator and scheme == "s3":
        from tao_sdk.results.s3_source import S3Results

        return S3Results(place)
    if separator and scheme == "file":
        place = "/" + rest.lstrip("/")
    elif separator or (results_dir and not local_results_dir):
        raise UnsupportedError(
            f"the results are at {place}, and this version fetches results from folders of this "
            "machine and from S3 only: copy them with the tools of that place"
        )
    if not place:
        raise ValidationError("nothing is known about where this job's results are")
    folder = Path(place)
    if not folder.is_dir():
        raise ValidationError(
            f"the results folder is not there: {folder} (was it removed, or is its disk not "
            "mounted?)"
        )
    return LocalResults(folder)
