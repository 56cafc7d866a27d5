"""A copy of the packaged bank that is the user's to change."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tao_sdk.errors import ValidationError
from tao_sdk.skills.errors import BankNotFoundError
from tao_sdk.skills.layout import PACKAGED_BANK

__all__ = ["install_bank"]

_HOST_SCRIPTS = "tao-setup-nvidia-gpu-host/scripts"
_ELSEWHERE = {
    f"{folder}/{_HOST_SCRIPTS}": f"skills/platform/{_HOST_SCRIPTS}"
    for folder in ("skills", "platform")
}
"""Where guides for the other layouts look for scripts, and where those are."""

_SHEBANG = "#!/usr/bin/env python3\n"
_LONGEST_SHEBANG = 127
"""What every Linux kernel accepts."""


def install_bank(folder: Path) -> Path:
    """Copy the packaged bank. Nothing is overwritten; the folder appears whole or not at all.

    The scripts get the interpreter that has the SDK, as installers of Python packages do it, so
    that they run from any shell.
    """
    if not PACKAGED_BANK.is_dir():
        raise BankNotFoundError("this installation of tao-sdk has no packaged bank: reinstall it")
    if os.path.lexists(folder) and not _is_empty(folder):
        raise ValidationError(f"{folder} exists already: choose another folder, or move it away")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as nearby:
            made = Path(nearby) / "bank"
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(PACKAGED_BANK, made, ignore=ignored)
            for script in [*made.rglob("scripts/*.py"), *made.rglob("scripts/*.sh")]:
                _make_runnable(script)
            for name, target in _ELSEWHERE.items():
                _link(made / name, made / target)
            made.replace(folder)
    except OSError as error:
        raise ValidationError(f"{folder} cannot be made: {error}") from error
    return folder


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())


def _make_runnable(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    if not text.startswith("#!"):
        return  # a module that scripts import
    if text.startswith(_SHEBANG) and _can_be_named(sys.executable):
        text = f"#!{sys.executable}\n" + text.removeprefix(_SHEBANG)
        script.write_text(text, encoding="utf-8")
    script.chmod(0o755)


def _link(name: Path, target: Path) -> None:
    """A relative link, which stays right when the bank is moved."""
    name.parent.mkdir(parents=True, exist_ok=True)
    name.symlink_to(os.path.relpath(target, name.parent), target_is_directory=True)


def _can_be_named(interpreter: str) -> bool:
    return " " not in interpreter and len(interpreter) + 2 <= _LONGEST_SHEBANG
