"""Images made on the spot."""

from __future__ import annotations

import io
import subprocess
import tarfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from lab.packages import locked

if TYPE_CHECKING:
    from lab.docker.engine import Engine

BUSYBOX = "tao-lab/busybox:1"
BASH = "tao-lab/bash:1"
NO_SHELL = "tao-lab/no-shell:1"
FOREIGN = "tao-lab/foreign:1"
SMOKE = "tao-lab/smoke:1"
"""Its nvidia-smi tells everything that a preflight asks about three GPUs."""

# What a probe of the GPUs finds: three, of which the first is in use.
_NVIDIA_SMI = """#!/bin/sh
echo '0, GPU-lab-0, 40000, NVIDIA Lab'
echo '1, GPU-lab-1, 3, NVIDIA Lab'
echo '2, GPU-lab-2, 3, NVIDIA Lab'
"""

NVIDIA_SMI_H100 = """#!/bin/sh
echo '0, GPU-lab-0, 40000, 81559, 9.0, 580.65.06, NVIDIA H100 80GB HBM3'
echo '1, GPU-lab-1, 3, 81559, 9.0, 580.65.06, NVIDIA H100 80GB HBM3'
echo '2, GPU-lab-2, 3, 81559, 9.0, 580.65.06, NVIDIA H100 80GB HBM3'
"""


def provide(engine: Engine) -> None:
    """Have every image on the engine."""
    present = set(engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split())
    if BUSYBOX not in present:
        load(engine, BUSYBOX, busybox_root({}))
    if BASH not in present:
        load(engine, BASH, busybox_root(with_libraries(Path("/bin/bash"), "bin/bash")))
    if NO_SHELL not in present:
        load(engine, NO_SHELL, _tar({"etc/empty": (b"", 0o644)}))
    if SMOKE not in present:
        load(engine, SMOKE, busybox_root({"bin/nvidia-smi": (NVIDIA_SMI_H100.encode(), 0o755)}))
    if FOREIGN not in present:
        # A program for another processor: the header of an ELF file for s390.
        header = b"\x7fELF\x02\x02\x01" + bytes(9) + b"\x00\x02\x00\x16\x00\x00\x00\x01"
        load(engine, FOREIGN, _tar({"bin/sh": (header + bytes(100), 0o755)}))


def making(engine: Engine) -> AbstractContextManager[None]:
    """One process at a time makes the images of an engine."""
    return locked(engine.folder / "images.lock")


def load(engine: Engine, name: str, tar: bytes) -> None:
    words = ["docker", "-H", engine.url, "import", "-", name]
    done = subprocess.run(words, input=tar, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


def with_libraries(program: Path, name: str) -> dict[str, tuple[bytes, int]]:
    """A program of this machine under that name, with the libraries that it loads."""
    told = subprocess.run(
        ["ldd", str(program)], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    libraries = [word for word in told.split() if word.startswith("/")]
    files = {library.lstrip("/"): (Path(library).read_bytes(), 0o755) for library in libraries}
    return {name: (program.read_bytes(), 0o755), **files}


def busybox_root(more: dict[str, tuple[bytes, int]]) -> bytes:
    """The files of an image with busybox and these, as a tar archive."""
    applets = subprocess.run(
        ["/bin/busybox", "--list"], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    files = {
        "bin/busybox": (Path("/bin/busybox").read_bytes(), 0o755),
        "bin/nvidia-smi": (_NVIDIA_SMI.encode(), 0o755),
        "etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\n", 0o644),
        "etc/group": (b"root:x:0:\n", 0o644),
        **more,
    }
    links = {f"bin/{name}": "busybox" for name in applets if f"bin/{name}" not in files}
    return _tar(files, links, ("tmp", "root", "proc", "sys", "dev", "var/tmp"))


def _tar(
    files: dict[str, tuple[bytes, int]],
    links: dict[str, str] | None = None,
    folders: tuple[str, ...] = (),
) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name in folders:
            made = tarfile.TarInfo(name)
            made.type = tarfile.DIRTYPE
            made.mode = 0o1777 if name.endswith("tmp") else 0o755
            archive.addfile(made)
        for name, (data, mode) in files.items():
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(data), mode
            archive.addfile(file, io.BytesIO(data))
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return held.getvalue()
