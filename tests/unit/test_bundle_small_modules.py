"""The small modules are made once, and read from a file that nobody else could have written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tao_sdk
from tao_sdk.bundle import preparation, small_modules
from tao_sdk.bundle.small_modules import SmallModule, as_text, cache_file, load

# Says whether what makes modules small was needed.
PROGRAM = """
import sys
from tao_sdk.script_runner import build_entrypoint
build_entrypoint(command="true")
print("tao_sdk.bundle.preparation" in sys.modules)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cache_file()
    assert path == tmp_path / "tao-sdk" / "small_modules.json"
    return path


def made_anew(**environment: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip() == "True"


def forged() -> str:
    """A file that fits the sources and says something else."""
    found = json.loads(as_text(preparation.prepare()))
    found["modules"]["entry"][0] = "raise SystemExit"
    return json.dumps(found)


def test_the_second_process_finds_them(cache: Path) -> None:
    assert made_anew()
    assert json.loads(cache.read_text())["modules"].keys() == set(preparation.module_names())
    assert oct(cache.stat().st_mode & 0o777) == "0o600"
    assert oct(cache.parent.stat().st_mode & 0o777) == "0o700"
    assert not made_anew()


def test_they_are_what_would_be_made(cache: Path) -> None:
    made = load()
    assert cache.exists()
    assert load() == made == preparation.prepare()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"digest": 1}', "other sources"])
def test_what_does_not_fit_is_made_anew(cache: Path, content: str) -> None:
    if content == "other sources":
        content = json.dumps({**json.loads(forged()), "digest": "0" * 64})
    cache.parent.mkdir(0o700)
    cache.write_text(content)
    cache.chmod(0o600)
    assert load() == preparation.prepare()
    assert json.loads(cache.read_text())["digest"] != "0" * 64


def test_our_own_file_is_believed(cache: Path) -> None:
    """So the tests below would notice if the others were, too."""
    cache.parent.mkdir(0o700)
    cache.write_text(forged())
    cache.chmod(0o600)
    assert load()["entry"] == SmallModule(
        "raise SystemExit", preparation.prepare()["entry"].imports
    )


@pytest.mark.parametrize(("folder", "file"), [(0o777, 0o600), (0o770, 0o600), (0o700, 0o660)])
def test_what_others_could_have_written_is_not_believed(
    cache: Path, folder: int, file: int
) -> None:
    cache.parent.mkdir()
    cache.write_text(forged())
    cache.chmod(file)
    cache.parent.chmod(folder)
    assert load() == preparation.prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users_file_is_not_believed(cache: Path) -> None:
    cache.parent.mkdir(0o700)
    cache.write_text(forged())
    cache.chmod(0o600)
    os.chown(cache, 12345, 12345)
    assert load() == preparation.prepare()


def test_a_link_is_not_followed(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "forged").write_text(forged())
    cache.parent.mkdir(0o700)
    cache.symlink_to(tmp_path / "forged")
    assert load() == preparation.prepare()
    assert not cache.is_symlink(), "the file is ours now"


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load() == preparation.prepare()


def test_a_wheel_brings_them_along(cache: Path, tmp_path: Path) -> None:
    """As the build hook leaves it: the file beside the module that reads it."""
    package = tmp_path / "site" / "tao_sdk"
    skipped = shutil.ignore_patterns("__pycache__", "small_modules.json")
    shutil.copytree(Path(tao_sdk.__file__).parent, package, ignore=skipped)
    text = as_text(preparation.prepare())
    (package / "bundle" / small_modules.PACKAGED_FILE.name).write_text(text)
    assert not made_anew(PYTHONPATH=str(package.parent))
    assert not cache.exists()
    # Sources that were changed since are not what the file speaks of.
    with (package / "runner" / "entry.py").open("a") as file:
        file.write("# changed\n")
    assert made_anew(PYTHONPATH=str(package.parent))
