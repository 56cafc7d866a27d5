"""The daemon's host, this machine or another one: its GPUs, programs and files."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tao_sdk.errors import (
    BackendUnreachableError,
    SubmissionRejectedError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.platforms.common.gpu_choice import GpuRequest
from tao_sdk.platforms.common.ttl_cache import TtlCache
from tao_sdk.platforms.docker import config, placeholders
from tao_sdk.platforms.docker.client import LONG_SECONDS, DaemonError, DockerClient
from tao_sdk.platforms.docker.gpus import is_tegra, probe_config, with_unlisted
from tao_sdk.platforms.gpus import discovery
from tao_sdk.platforms.gpus.discovery import Gpu, parse_nvidia_smi
from tao_sdk.untrusted import read_regular

_log = logging.getLogger("tao_sdk.docker")
# The GPUs stay the same, but not the memory in use on them.
_INVENTORY_SECONDS = 30
# Not `ls`: there are some that print question marks for letters beyond ASCII.
_LIST = (
    '[ -d "$1" ] || set -- "$1" "$1"; '
    'for f in "${2:-$1/}"* "$1"/.[!.]*; do '
    """[ ! -e "$f" ] || [ "$f" = "$1/" ] || printf '%s\\n' "${f##*/}"; done"""
)


class GpusUnknownError(SubmissionRejectedError):
    """The host has no list of its GPUs, or none for this image."""


class DockerHost:
    """The machine that runs the daemon."""

    def __init__(self, transport: DockerClient) -> None:
        self._transport = transport
        self._local = transport.endpoint.local
        self._inventory: TtlCache[list[Gpu]] = TtlCache(_INVENTORY_SECONDS)
        self._known: TtlCache[list[Gpu] | None] = TtlCache(_INVENTORY_SECONDS)

    # ------------------------------------------------------------------ GPUs

    def gpus(self, image: str) -> list[Gpu]:
        """The GPUs of the host; where listing them takes a container, it is one of `image`."""

        def ask() -> list[Gpu]:
            found = self._find_gpus(image)
            self._known.put("gpus", found)
            return found

        return self._inventory.get("gpus", ask)

    def gpus_for(self, image: str, wanted: GpuRequest) -> list[Gpu]:
        """The GPUs from which a job gets its own; those that it names need not be listed."""
        listed: list[Gpu] | None = None
        try:
            listed = self.gpus(image)
        except GpusUnknownError:
            if not wanted.ids:
                raise
        return with_unlisted(listed, wanted)

    def known_gpus(self) -> list[Gpu] | None:
        """The GPUs if they can be listed without running a container, else None."""
        return discovery.discover() if self._local and discovery.can_tell() else None

    def known_now(self) -> list[Gpu] | None:
        """The GPUs as listed a moment ago, or now if that takes no container; else None."""
        return self._known.get("gpus", self._known_or_none)

    def _known_or_none(self) -> list[Gpu] | None:
        try:
            return self.known_gpus()
        except BackendUnreachableError as error:
            _log.warning("the GPUs of this machine cannot be listed: %s", error)
            return None

    def _find_gpus(self, image: str) -> list[Gpu]:
        known = self.known_gpus()
        if known is not None:
            return known
        info = self._transport.info
        try:
            code, text = self.run(probe_config(image, info))
        except DaemonError as error:
            if is_tegra(info) and "nvidia-smi" in str(error):
                return [Gpu("0", "tegra-0", model="Tegra")]  # Jetsons have no nvidia-smi
            raise GpusUnknownError(
                f"the GPUs of the Docker host cannot be listed: {error}; gpu_ids= names them"
            ) from error
        if code != 0:
            raise GpusUnknownError(
                f"the GPUs of the Docker host cannot be listed: nvidia-smi in {image} ended with "
                f"{code}: {text.strip()}; gpu_ids= names them"
            )
        return parse_nvidia_smi(text)

    # ------------------------------------------------------------------ programs

    def run(self, body: dict[str, Any]) -> tuple[int, str]:
        """Run a short-lived container; its exit code and output."""
        labelled = {**body, "Labels": {config.LABEL: "true", config.LABEL_HELPER: "true"}}
        api = self._transport.api
        container = api.create(labelled)
        try:
            api.start(container)
            code = int(api.wait(container, timeout=LONG_SECONDS)["StatusCode"])
            output = api.logs(container)
        finally:
            api.remove_container(container, v=True, force=True)
        return code, output.decode("utf-8", "replace")

    def run_in(self, image: str, source: str, argv: Sequence[str]) -> tuple[int, str]:
        """Run a program of an image with a folder or volume of the host at `WINDOW`."""
        kind = "bind" if source.startswith("/") else "volume"
        mount = {"Type": kind, "Source": source, "Target": placeholders.WINDOW}
        return self.run(
            {
                "Image": image,
                "Entrypoint": [argv[0]],
                "Cmd": list(argv[1:]),
                "User": "0",
                "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
            }
        )

    # ------------------------------------------------------------------ files

    def _is_here(self, source: str) -> bool:
        """Whether it is a folder of this machine, and not of another one or a volume."""
        return self._local and source.startswith("/")

    def check_path(self, address: str) -> bool:
        """Whether there is such a path on the host."""
        source, below = locate(address)
        if self._is_here(source):
            return Path(source).exists()
        try:
            with placeholders.window(self._transport, source) as window:
                path = f"{placeholders.WINDOW}/{below}"
                return not below or placeholders.stat(self._transport, window, path) is not None
        except DaemonError as error:
            if error.missing or "does not exist" in str(error):
                return False
            raise

    def list_path(self, address: str, helper_image: Callable[[], str]) -> list[str]:
        """Names in a folder of the host."""
        if not self.check_path(address):
            raise ValidationError(f"{address}: there is no such path on the Docker host")
        source, below = locate(address)
        if self._is_here(source):
            path = Path(source)
            return sorted(e.name for e in path.iterdir()) if path.is_dir() else [path.name]
        folder = f"{placeholders.WINDOW}/{below}".rstrip("/")
        code, text = self.run_in(helper_image(), source, ["/bin/sh", "-c", _LIST, "sh", folder])
        if code != 0:
            raise ValidationError(f"{address}: {text.strip()}")
        return sorted(text.splitlines())

    def read_file(self, source: str, path: str, limit: int) -> bytes | None:
        """The beginning of a file below a folder or volume of the host; None when there is none.

        A job may have left anything under that name: a folder, a pipe, a link.
        """
        if self._is_here(source):
            try:
                return read_regular(Path(source, path), limit)
            except PermissionError:
                pass  # only the job's user may read it, or the daemon
            except OSError as error:
                raise BackendUnreachableError(f"{source}/{path} cannot be read: {error}") from error
        return placeholders.read_file(self._transport, source, path, limit)

    def remove_folder(self, source: str, name: str, image: str) -> None:
        """Remove a folder of the host: directly if we may, else in a container of `image`."""
        if self._is_here(source):
            with contextlib.suppress(FileNotFoundError, PermissionError):
                shutil.rmtree(Path(source, name))
            if not Path(source, name).exists():
                return
        code, text = self.run_in(
            image, source, ["rm", "-rf", "--", f"{placeholders.WINDOW}/{name}"]
        )
        if code != 0:
            raise BackendUnreachableError(f"{source}/{name} cannot be removed: {text.strip()}")


def locate(address: str) -> tuple[str, str]:
    """What an address of the host names: a path; or a volume, and a path below it."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address.rstrip("/") or "/", ""
    if scheme == "docker-volume":
        volume, _, below = rest.partition("/")
        return volume, below.strip("/")
    if scheme in ("file", "docker-bind"):
        return "/" + rest.strip("/"), ""
    raise UnsupportedError(
        f"{address}: not a place of the Docker host; give a path, file:// or docker-volume://"
    )
