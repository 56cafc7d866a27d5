"""Images with Python, made of the interpreter that runs the tests and two of its packages."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import os
import platform
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.docker import images
from lab.docker.engine import Engine

_REPOSITORY = "tao-lab/python"
_TRAINER = "tao-lab/trainer:1"
SPEC = "/tmp/spec.yaml"
_LIBRARY = f"usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}"
# Of no use to a job, and half of the size.
_LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages"}
_PACKAGES_FOLDER = "usr/local/lib/packages"
_PTH = f"/{_PACKAGES_FOLDER}\n".encode()
_PACKAGES = ("numpy", "yaml")
_EXAMPLES = Path(__file__).parents[3] / "examples"


def python_image(engine: Engine) -> str:
    """An image with busybox, bash, Python, NumPy and PyYAML; its name.

    It stays with the engine until one of those has another version.
    """
    image = f"{_REPOSITORY}:{hashlib.sha256(repr(versions()).encode()).hexdigest()[:12]}"
    with images.making(engine):
        present = engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        if image not in present:
            older = [name for name in present if name.startswith(f"{_REPOSITORY}:")]
            if older:
                engine.docker("rmi", *older, check=False)
            images.load(engine, image, python_root())
    return image


def versions() -> list[str]:
    """Of what the image is made of."""
    return [platform.python_version(), *map(importlib.metadata.version, ("numpy", "PyYAML"))]


def trainer_image(engine: Engine) -> str:
    """The same with the demo trainer, installed as the program `dino`, and a spec of it."""
    program = r"""printf '#!/bin/sh\nexec python3 -m tiny_trainer "$@"\n' > /bin/dino"""
    lines = [
        f"FROM {python_image(engine)}",
        "COPY tiny_trainer /opt/tao/tiny_trainer",
        "ENV PYTHONPATH=/opt/tao",
        f"RUN {program} && chmod 755 /bin/dino && cp /opt/tao/tiny_trainer/specs/train.yaml {SPEC}",
    ]
    with images.making(engine):
        words = ["build", "--network", "none", "-q", "-t", _TRAINER, "-f", "-", str(_EXAMPLES)]
        subprocess.run(
            ["docker", "-H", engine.url, *words],
            input="\n".join(lines),
            text=True,
            env={**os.environ, "DOCKER_BUILDKIT": "0"},
            check=True,
            capture_output=True,
            timeout=120,
        )
    return _TRAINER


def python_root() -> bytes:
    """The files of the image, as a tar archive."""
    program = Path(sys._base_executable).resolve()
    busybox = images.busybox_root(images.with_libraries(Path("/bin/bash"), "bin/bash"))
    with tempfile.TemporaryFile() as held:
        held.write(busybox)
        held.seek(0)
        # Times are kept: Python compares those of a module with its compiled form's.
        with tarfile.open(fileobj=held, mode="a") as archive:
            name = program.name
            archive.add(program, f"usr/local/bin/{name}")
            for link in ("python3", "python"):
                made = tarfile.TarInfo(f"usr/local/bin/{link}")
                made.type, made.linkname = tarfile.SYMTYPE, name
                archive.addfile(made)
            for source, target in _trees():
                archive.add(source, target, filter=_kept)
            site = tarfile.TarInfo(f"{_LIBRARY}/site-packages/lab.pth")
            site.size = len(_PTH)
            archive.addfile(site, io.BytesIO(_PTH))
            present = set(archive.getnames())
            for library in _libraries(program):
                target = str(library).lstrip("/")
                if target not in present:
                    archive.add(library.resolve(), target)
        held.seek(0)
        return held.read()


def _trees() -> Iterator[tuple[Path, str]]:
    yield Path(sysconfig.get_path("stdlib")), _LIBRARY
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent
        bundled = folder.parent / f"{package}.libs"
        for source in (folder, bundled):
            if source.exists():
                yield source, f"{_PACKAGES_FOLDER}/{source.name}"


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    below = member.name.removeprefix(f"{_LIBRARY}/")
    parts = set(below.split("/"))
    return None if parts & _LEFT_OUT or below.startswith("config-") else member


def _libraries(program: Path) -> set[Path]:
    """What the interpreter and its extension modules load from this machine."""
    trees = [source for source, _ in _trees()]
    modules = [path for tree in trees for path in tree.rglob("*.so*")]
    told = subprocess.run(
        ["ldd", str(program), *map(str, modules)], capture_output=True, text=True, timeout=120
    ).stdout
    needed = {Path(word) for word in told.split() if word.startswith("/") and word[-1] != ":"}
    return {
        path for path in needed if not any(path.resolve().is_relative_to(tree) for tree in trees)
    }
