"""Local disk or network file system? Decides how the store is locked."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

# Where several hosts may see the same file, or where memory shared between processes of one host
# is not reliable (9p and virtiofs under containers and virtual machines).
_NETWORK_TYPES = frozenset(
    {
        "9p",
        "acfs",
        "afpfs",
        "afs",
        "autofs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "drvfs",
        "fhgfs",
        "ftp",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "juicefs",
        "lustre",
        "macfuse",
        "ncpfs",
        "nfs",
        "nfs3",
        "nfs4",
        "ocfs2",
        "osxfuse",
        "panfs",
        "prl_fs",
        "pvfs2",
        "quobyte",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "webdav",
        "weka",
        "wekafs",
    }
)
_USER_SPACE_PREFIX = "fuse."  # sshfs, s3fs, rclone, gcsfuse, Docker Desktop's shares ...

_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")
_MOUNT_LINE = re.compile(r"^.* on (?P<point>/.*) \((?P<type>[^,)]+)")


def on_network(path: Path) -> bool:
    """True when the file system of `path` is not a plain local disk."""
    kind = type_of_mount(path, _mounts())
    return kind in _NETWORK_TYPES or kind.startswith(_USER_SPACE_PREFIX)


def type_of_mount(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """The type of the mount that `path` lies on; "" when no mount fits."""
    target = PurePosixPath(path)
    best, kind = -1, ""
    for point, mounted in mounts:
        depth = len(PurePosixPath(point).parts)
        # Of two mounts at the same place the later one lies on top.
        if depth >= best and target.is_relative_to(point):
            best, kind = depth, mounted
    return kind


def parse_mountinfo(text: str) -> list[tuple[str, str]]:
    """(mount point, type) pairs of Linux's /proc/self/mountinfo."""
    pairs = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        pairs.append((_unescape(before.split()[4]), after.split()[0]))
    return pairs


def parse_mount_output(text: str) -> list[tuple[str, str]]:
    """(mount point, type) pairs of what `mount` prints on macOS."""
    found = (_MOUNT_LINE.match(line) for line in text.splitlines())
    return [(match["point"], match["type"]) for match in found if match]


def _mounts() -> list[tuple[str, str]]:
    if sys.platform.startswith("linux"):
        return parse_mountinfo(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    import subprocess  # costs milliseconds that only macOS has to pay

    listed = subprocess.run(["mount"], capture_output=True, text=True, check=True)
    return parse_mount_output(listed.stdout)


def _unescape(text: str) -> str:
    return _OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
