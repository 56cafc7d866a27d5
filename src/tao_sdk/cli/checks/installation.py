"""Is it this package that runs, and is it whole?"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

import tao_sdk
from tao_sdk._version import __version__
from tao_sdk.cli.checks.findings import Finding, note, problem

_OURS = "tao-sdk"
_OTHER = "nvidia-tao-sdk"
"""NVIDIA's distribution brings an import package of the same name."""

EXTRAS = {
    "docker": ("docker", "urllib3"),
    "kubernetes": ("kubernetes", "urllib3"),
    "lepton": ("urllib3",),
    "automl": ("optuna", "numpy", "scipy", "threadpoolctl", "cmaes"),
    "web": ("starlette", "uvicorn"),
    "mcp": ("mcp",),
    "tui": ("textual",),
}
"""Extra -> the packages it brings, by the names they are imported under."""

_UNUSED_BY_JOBS = {
    "kubernetes": "only the preflight commands of the skills import it; jobs, logs and results do "
    "without it",
}
"""Packages of an extra that its platform works without -> what they are for."""


def check_installation() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("version", f"{_OURS} {__version__}, Python {python} ({sys.executable})")
    yield from _check_distribution()
    yield from _check_copies()
    yield from _check_program()


def check_extras() -> Iterator[Finding]:
    for extra, packages in EXTRAS.items():
        missing = [name for name in packages if util.find_spec(name) is None]
        install = f"pip install '{_OURS}[{extra}]'"
        if not missing:
            yield Finding(extra, "installed")
        elif _UNUSED_BY_JOBS.keys() >= set(missing):
            uses = "; ".join(f"{name}: {_UNUSED_BY_JOBS[name]}" for name in missing)
            yield note(extra, f"installed without {', '.join(missing)} ({uses})", install)
        else:
            yield note(extra, f"not installed ({', '.join(missing)})", install)


def _check_distribution() -> Iterator[Finding]:
    other = _installed(_OTHER)
    if other is not None:
        yield problem(
            _OTHER,
            f"{_OTHER} {other} is installed beside {_OURS}, and both bring the import package "
            "tao_sdk: files of one have replaced files of the other",
            f"pip uninstall {_OTHER}; pip install --force-reinstall --no-deps {_OURS}",
        )
    ours = _installed(_OURS)
    if ours is None:
        yield note(
            "package",
            "not installed as a package: platforms of other packages are found, but pip does not "
            "know this one",
        )
    elif ours != __version__:
        yield problem(
            "package",
            f"pip knows {_OURS} {ours}, and {__version__} runs",
            f"pip install --force-reinstall --no-deps {_OURS}",
        )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _check_copies() -> Iterator[Finding]:
    """Python takes the first tao_sdk on its path; another program may have another path."""
    used = Path(tao_sdk.__file__).resolve().parent
    yield Finding("imported from", str(used))
    folders = (Path(entry or ".").resolve() / "tao_sdk" for entry in sys.path)
    others = dict.fromkeys(
        folder for folder in folders if (folder / "__init__.py").is_file() and folder != used
    )
    for folder in others:
        yield note(
            "another copy",
            f"{folder} is a tao_sdk, too; the one above comes first",
            "remove it, or take its folder from PYTHONPATH, so that no program picks it up",
        )


def _check_program() -> Iterator[Finding]:
    scripts, found = sysconfig.get_path("scripts"), shutil.which(_OURS)
    if found is None:
        yield note("program", f"{_OURS} is not on PATH", f'export PATH="{scripts}:$PATH"')
    elif Path(found).parent.resolve() != Path(scripts).resolve():
        yield note(
            "program",
            f"{_OURS} on PATH is {found}, of another Python than this one",
            f"use {scripts}/{_OURS}, or put {scripts} first on PATH",
        )
    else:
        yield Finding("program", found)
