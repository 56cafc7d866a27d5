"""Images for the cluster's containers, made of this machine's own programs."""

from __future__ import annotations

import hashlib
import io
import pwd
import shutil
import subprocess
import tarfile
from pathlib import Path

from lab.docker.images import busybox_root
from lab.docker.python_image import python_root, versions
from lab.packages import cache, find, locked
from lab.slurm.configuration import Layout

REGISTRY = "registry.lab"
"""Gives its images to everybody."""
PRIVATE_REGISTRY = "private.lab"
"""Asks who wants them; `enroot` reads that from its .credentials."""
REGISTRY_USER, REGISTRY_PASSWORD = "$oauthtoken", "lab-password"
NAMES = ("busybox", "python", "trainer")
# Thirty times as quick as the default.
_COMPRESSED = ("-comp", "lz4")
_EXAMPLES = Path(__file__).parents[3] / "examples"
# What an image file says about the environment of its programs, as `enroot import` writes it.
_TRAINER_ENVIRONMENT = b"PYTHONPATH=/opt/tao\n"
_TRAINER_PROGRAM = b'#!/bin/sh\nexec python3 -m tiny_trainer "$@"\n'


def digest(*parts: bytes | str) -> str:
    """A short name for what something was made of."""
    text = b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    return hashlib.sha256(text).hexdigest()[:12]


def provide(layout: Layout, owner: str) -> None:
    """Have every image as a file, and in both registries as `lab/<name>:1`.

    Enroot unpacks an image for its user: everything in it is the user's, who is root inside.
    """
    layout.images.mkdir()
    for name in NAMES:
        shutil.copy(_made(name, owner), layout.images / f"{name}.sqsh")
    for host in (REGISTRY, PRIVATE_REGISTRY):
        (layout.registry / host / "lab").mkdir(parents=True)
        for name in NAMES:
            place = layout.registry / host / "lab" / f"{name}:1.sqsh"
            place.hardlink_to(layout.images / f"{name}.sqsh")
    asked = layout.registry / PRIVATE_REGISTRY / ".password"
    asked.write_text(f"{REGISTRY_USER} {REGISTRY_PASSWORD}\n")


def _made(name: str, owner: str) -> Path:
    """The file of an image, made anew when what it is made of has changed."""
    uid, gid = (str(number) for number in pwd.getpwnam(owner)[2:4])
    folder = cache() / "slurm"
    made = folder / f"{name}-{digest(uid, gid, *_COMPRESSED, *_ingredients(name))}.sqsh"
    with locked(folder / f"{name}.lock"):
        if not made.exists():
            for older in folder.glob(f"{name}-*.sqsh"):
                older.unlink()
            partial = made.with_suffix(".partial")
            owned = ("-force-uid", uid, "-force-gid", gid)
            done = subprocess.run(
                [find("sqfstar"), "-quiet", "-no-progress", *_COMPRESSED, *owned, str(partial)],
                input=_root(name),
                capture_output=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr.decode()
            partial.replace(made)
    return made


def _ingredients(name: str) -> list[bytes | str]:
    """What an image depends on."""
    programs: list[bytes | str] = [Path("/bin/busybox").read_bytes()]
    if name != "busybox":
        programs += versions()
    if name == "trainer":
        programs += [path.read_bytes() for path in _trainer_files()]
    return programs


def _root(name: str) -> bytes:
    """The files of an image, as a tar archive."""
    if name == "busybox":
        return busybox_root({})
    if name == "python":
        return python_root()
    held = io.BytesIO(python_root())
    with tarfile.open(fileobj=held, mode="a") as archive:
        for path in _trainer_files():
            archive.add(path, f"opt/tao/{path.relative_to(_EXAMPLES)}")
        for place, data, mode in (
            ("bin/dino", _TRAINER_PROGRAM, 0o755),
            ("etc/environment", _TRAINER_ENVIRONMENT, 0o644),
        ):
            member = tarfile.TarInfo(place)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return held.getvalue()


def _trainer_files() -> list[Path]:
    found = (_EXAMPLES / "tiny_trainer").rglob("*")
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)
