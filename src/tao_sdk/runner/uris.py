"""Names: schemes of URIs, the paths that some stand for, archives, depth of paths."""

from __future__ import annotations

import re

from .errors import RunnerError

IN_PLACE_SCHEMES = ("lustre", "slurm", "file")

ARCHIVE_SUFFIX = re.compile(
    r"(?<=[^/])\.(tar(\.(gz|bz2|xz|zst))?|tgz|tbz2|txz|tzst|zip)$", re.IGNORECASE
)
# Functions that walk through folders call themselves, in Python's library as well.
MOST_STEPS = 250
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")


def scheme_of(value: object) -> str:
    """The scheme in lower case; "" for a plain path and for anything that is not text."""
    match = _SCHEME.match(value) if isinstance(value, str) else None
    return match.group(1).lower() if match else ""


def is_archive(name: str) -> bool:
    """Whether a file of this name is one that can be unpacked."""
    return ARCHIVE_SUFFIX.search(name) is not None


def local_path(value: str) -> str:
    """The path that an absolute path or a `lustre://`, `slurm://`, `file://` URI stands for.

    The file systems of a cluster have no host, so the number of slashes makes no difference:
    `lustre:///fs/data` and `lustre://fs/data` are both `/fs/data`.
    """
    if value.startswith("/"):
        return value
    scheme = scheme_of(value)
    rest = value[len(scheme) + 3 :]
    if scheme == "file":
        if rest.startswith("localhost/"):
            rest = rest[len("localhost") :]
        if not rest.startswith("/"):
            raise RunnerError(f"{value}: write file:///ABSOLUTE/PATH")
    elif scheme not in IN_PLACE_SCHEMES:
        raise RunnerError(f"{value!r} is not a path of this file system")
    if not rest.strip("/"):
        raise RunnerError(f"{value}: it names no path: write {scheme}:///ABSOLUTE/PATH")
    return "/" + rest.lstrip("/")
