"""Images in the forms that people write and runtimes want: pure."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from tao_sdk.errors import ValidationError

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@#+-]*")
_PATH = re.compile(r"/[A-Za-z0-9_./+@=:-]*")
_SCHEME = "docker://"


class Image(NamedTuple):
    """An image: a file or folder of the cluster, or a name in a registry."""

    path: str = ""
    registry: str = ""
    name: str = ""

    @property
    def is_path(self) -> bool:
        return bool(self.path)

    @property
    def pyxis(self) -> str:
        """As Pyxis names it: `registry#name:tag`. A digest takes the place of the tag."""
        if self.path:
            return self.path
        name = self.name.replace("@", ":", 1)
        return f"{self.registry}#{name}" if self.registry else name

    @property
    def uri(self) -> str:
        """As enroot imports it."""
        return f"{_SCHEME}{self.pyxis}"

    @property
    def docker_uri(self) -> str:
        """As Apptainer pulls it."""
        return f"{_SCHEME}{self.registry}/{self.name}" if self.registry else _SCHEME + self.name

    @property
    def text(self) -> str:
        """As people write it."""
        return self.path or (f"{self.registry}/{self.name}" if self.registry else self.name)

    @property
    def cache_name(self) -> str:
        """The squashfs file: readable, and never the same for two images."""
        whole = f"{self.registry}/{self.name}"
        digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", whole.strip("/"))[:120]
        return f"{readable}-{digest}.sqsh"

    @property
    def is_latest(self) -> bool:
        tail = self.name.rpartition("/")[2]
        return "@" not in tail and (":" not in tail or tail.endswith(":latest"))


def parse_image(text: str) -> Image:
    """Read any of the accepted forms."""
    if text.startswith("/"):
        if not _PATH.fullmatch(text) or ".." in text.split("/"):
            raise ValidationError(f"image: {text!r} is not a path that Slurm can be given")
        return Image(path=text)
    plain = text.removeprefix(_SCHEME)
    if not _IMAGE.fullmatch(plain):
        raise ValidationError(
            f"image: {text!r} is none of /path/image.sqsh, registry#name:tag, "
            "docker://registry#name:tag, registry/name:tag"
        )
    if "#" in plain:
        registry, _, name = plain.partition("#")
        return _named(registry, name)
    first, slash, rest = plain.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return _named(first, rest)
    return _named("", plain)


def _named(registry: str, name: str) -> Image:
    """An image of a registry. What a digest names no tag can change: the tag is left out."""
    path, at, digest = name.partition("@")
    if not at:
        return Image(registry=registry, name=name)
    folder, slash, last = path.rpartition("/")
    return Image(registry=registry, name=f"{folder}{slash}{last.partition(':')[0]}@{digest}")
