"""Files that are replaced whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tao_sdk import atomic_files
from tao_sdk.atomic_files import write_private, write_private_json

SOURCES = Path(atomic_files.__file__).resolve().parents[1]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", ["text é 🚀\r\n", b"\x00\xff", "", b""])
def test_the_content_arrives_exactly(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "file"
    write_private(path, content)
    expected = content.encode() if isinstance(content, str) else content
    assert path.read_bytes() == expected
    assert mode(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_looser_file_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old and much longer")
    path.chmod(0o644)
    write_private(str(path), "new")
    assert path.read_text() == "new"
    assert mode(path) == 0o600


def test_a_generous_umask_changes_nothing(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_private(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o600


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    (tmp_path / "file").symlink_to(elsewhere)
    write_private(tmp_path / "file", "new")
    assert elsewhere.read_text() == "untouched"
    assert not (tmp_path / "file").is_symlink()


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()  # a folder cannot be replaced by a file
    (target / "kept").write_text("old")
    with pytest.raises(OSError, match="irectory"):
        write_private(target, "new")
    assert list(tmp_path.iterdir()) == [target]
    assert (target / "kept").read_text() == "old"


def test_text_that_cannot_be_encoded_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_private(tmp_path / "missing" / "file", "x")


def test_json_is_sorted_and_indented(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_private_json(path, {"b": [1], "a": "é"})
    assert path.read_text() == '{\n  "a": "\\u00e9",\n  "b": [\n    1\n  ]\n}\n'
    write_private_json(path, [])
    assert path.read_text() == "[]\n"


@pytest.mark.parametrize("value", [float("nan"), {"x": object()}])
def test_what_json_cannot_hold_touches_nothing(tmp_path: Path, value: object) -> None:
    path = tmp_path / "file.json"
    write_private_json(path, {"kept": True})
    with pytest.raises((ValueError, TypeError)):
        write_private_json(path, value)
    assert json.loads(path.read_text()) == {"kept": True}
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_private_json(path, ["0"] * 20_000)
    program = (
        "import sys; from tao_sdk.atomic_files import write_private_json\n"
        "for n in range(40): write_private_json(sys.argv[1], [str(n)] * 20_000)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen([sys.executable, "-c", program, str(path)], env=environment) as writer:
        while writer.poll() is None:
            values = json.loads(path.read_text())
            assert len(values) == 20_000
            assert len(set(values)) == 1
    assert writer.returncode == 0
