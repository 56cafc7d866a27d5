"""Images made on the spot: for the nodes, and for a registry that asks for a password."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.docker.images import BUSYBOX, busybox_root, with_libraries
from lab.docker.python_image import SPEC, python_root, versions
from lab.packages import cache, locked

PYTHON = "tao-lab/python:1"
"""The same with bash, Python, NumPy, PyYAML and some of GNU's programs."""
TRAINER = "tao-lab/trainer:1"
"""The same with the demo trainer, installed as the program `dino`, and a spec of it."""
PAUSE = "lab.local/pause:1"
"""What holds a pod's namespaces."""
PRIVATE = "team/private:1"
"""Only in the registry, for those with the password; has the file /etc/private."""
NAME = "io.containerd.image.name"
"""The annotation that says what an image is called."""
_ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
# The shell of busybox would run its own programs, whatever PATH says.
_GNU = {
    "bin/sh": "dash",
    **{f"usr/local/bin/{name}": name for name in ("find", "xargs", "tar", "sha256sum")},
}
_KEPT_SECONDS = 24 * 3600
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
_EXAMPLES = Path(__file__).parents[3] / "examples"
_DINO = b'#!/bin/sh\nexec python3 -m tiny_trainer "$@"\n'


class ImageFolder:
    """Images in the layout of the Open Container Initiative."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blobs = folder / "blobs" / "sha256"
        self._blobs.mkdir(parents=True)
        self._index: list[dict[str, Any]] = []

    def add(self, name: str, layers: Sequence[bytes], **settings: Sequence[str]) -> None:
        """An image of these layers, tar archives; later ones are above earlier ones."""
        described = [self._add("image.layer.v1.tar", layer) for layer in layers]
        config = {
            "architecture": _PROCESSORS[platform.machine()],
            "os": "linux",
            "config": {"Env": _ENVIRONMENT, **settings},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in described]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self._add("image.config.v1+json", json.dumps(config).encode()),
            "layers": described,
        }
        entry = self._add("image.manifest.v1+json", json.dumps(manifest).encode())
        self._index.append({**entry, "annotations": {NAME: name}})

    def finish(self) -> None:
        (self._folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        index = {"schemaVersion": 2, "manifests": self._index}
        (self._folder / "index.json").write_text(json.dumps(index))

    def _add(self, kind: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (self._blobs / digest).write_bytes(data)
        media_type = f"application/vnd.oci.{kind}"
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def provide() -> Path:
    """The folder with all images: `nodes.tar`, which nodes import, and `private`."""
    folder = cache() / "kubernetes"
    folder.mkdir(exist_ok=True)
    made = folder / f"images-{_digest_of_ingredients()}"
    with locked(folder / "images.lock"):
        if not made.exists():
            for older in folder.glob("images-*/"):
                # Another checkout may use its own just now.
                if time.time() - older.stat().st_mtime > _KEPT_SECONDS:
                    shutil.rmtree(older)
            partial = folder / "images.partial"
            shutil.rmtree(partial, ignore_errors=True)
            _make(partial)
            partial.replace(made)
    return made


def _make(folder: Path) -> None:
    busybox, python = busybox_root({}), [python_root(), _gnu_layer()]
    nodes = ImageFolder(folder / "nodes")
    nodes.add(PAUSE, [busybox], Entrypoint=["/bin/busybox", "tail", "-f", "/dev/null"])
    nodes.add(f"docker.io/{BUSYBOX}", [busybox])
    nodes.add(f"docker.io/{PYTHON}", python)
    trainer = [*python, _trainer_layer()]
    nodes.add(f"docker.io/{TRAINER}", trainer, Env=[*_ENVIRONMENT, "PYTHONPATH=/opt/tao"])
    nodes.finish()
    with tarfile.open(folder / "nodes.tar", "w") as archive:
        archive.add(folder / "nodes", "")
    shutil.rmtree(folder / "nodes")
    private = ImageFolder(folder / "private")
    private.add(PRIVATE, [busybox, _tar({"etc/private": (b"private\n", 0o644)})])
    private.finish()


def _gnu_layer() -> bytes:
    """Programs that images with a distribution have, before those of busybox."""
    files: dict[str, tuple[bytes, int]] = {}
    for target, name in _GNU.items():
        files |= with_libraries(_program(name), target)
    return _tar(files)


def _program(name: str) -> Path:
    return Path(shutil.which(name) or name).resolve()


def _trainer_layer() -> bytes:
    sources = {
        f"opt/tao/{path.relative_to(_EXAMPLES)}": (path.read_bytes(), 0o644)
        for path in _trainer_files()
    }
    spec = (_EXAMPLES / "tiny_trainer" / "specs" / "train.yaml").read_bytes()
    return _tar({**sources, "bin/dino": (_DINO, 0o755), SPEC.lstrip("/"): (spec, 0o644)})


def _trainer_files() -> list[Path]:
    found = (_EXAMPLES / "tiny_trainer").rglob("*")
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return held.getvalue()


def _digest_of_ingredients() -> str:
    """Another one when something that images are made of has changed."""
    code = Path(__file__).read_bytes()
    programs = [_program(name).read_bytes() for name in _GNU.values()]
    files = [
        Path("/bin/busybox").read_bytes(),
        *programs,
        *(path.read_bytes() for path in _trainer_files()),
    ]
    parts = (code, *files, repr(versions()).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
