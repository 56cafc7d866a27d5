"""The scripts of the packaged bank: thin, executable, and helpful where the SDK is missing."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tao_sdk.skills.scripts

SCRIPTS = Path(tao_sdk.skills.scripts.__file__).parent / "bank" / "scripts"
HELPERS = sorted(path.stem for path in SCRIPTS.glob("*.py") if not path.stem.startswith("_"))
# Neither packages nor settings of the environment: an interpreter that has not got the SDK.
BARE = [sys.executable, "-S", "-E"]


def run(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    outside = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment}
    return subprocess.run(words, env=outside, capture_output=True, text=True, timeout=60)


def test_each_function_for_helpers_has_its_script() -> None:
    own = {name for name in tao_sdk.skills.scripts.__all__ if not name.startswith("_")}
    assert own <= set(HELPERS)


@pytest.mark.parametrize("name", HELPERS)
def test_it_is_executable_and_thin(name: str) -> None:
    path = SCRIPTS / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env python3\n")
    assert os.access(path, os.X_OK)
    assert len(text.splitlines()) < 12


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.name)
def test_old_interpreters_can_read_it(path: Path) -> None:
    """Otherwise they would show a syntax error instead of the sentence that helps."""
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))


@pytest.mark.parametrize("name", HELPERS)
def test_help_is_in_its_own_name(name: str) -> None:
    done = run([sys.executable, str(SCRIPTS / f"{name}.py"), "--help"])
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {name}.py ")


@pytest.mark.seed("000.25")
@pytest.mark.parametrize("name", HELPERS)
def test_without_the_sdk_one_line_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    copied = tmp_path / "bank" / "scripts"
    shutil.copytree(SCRIPTS, copied)
    done = run([*BARE, str(copied / f"{name}.py"), "--help"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{name}.py: {sys.executable} cannot use tao-sdk")
    assert f"{sys.executable} -m pip install tao-sdk" in done.stderr


def test_in_the_package_the_sdk_around_it_is_found() -> None:
    """A checkout that nobody installed: the scripts lie inside of the package that they need."""
    done = run([*BARE, str(SCRIPTS / "list_tao_platforms.py"), "--platform", "k8s"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Platform: kubernetes")


def test_its_own_bank_is_used_when_no_other_is_named(tmp_path: Path) -> None:
    bank = tmp_path / "bank"
    shutil.copytree(SCRIPTS.parent, bank)
    manifest = bank / "skills" / "platform" / "platforms.manifest.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace("DGX Cloud Lepton", "Somewhere else"), encoding="utf-8")
    script = str(bank / "scripts" / "list_tao_platforms.py")
    done = run([sys.executable, script], HOME=str(tmp_path))
    assert "lepton (Somewhere else)" in done.stdout
