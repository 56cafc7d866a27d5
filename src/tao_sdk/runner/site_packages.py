"""Packages of the image, which `-I -S` keep out of the runner until it wants one of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def importable(name: str) -> Any:
    """A module of Python's or, failing that, of the image's packages; None if there is none."""
    try:
        return import_module(name)
    except ImportError:
        _add_site_packages()
    try:
        return import_module(name)
    except ImportError:
        return None


def _add_site_packages() -> None:
    """Append them to the path, a virtual environment's too, without the image's sitecustomize."""
    import site

    known = site.removeduppaths()
    site.venv(known)
    site.addsitepackages(known)
