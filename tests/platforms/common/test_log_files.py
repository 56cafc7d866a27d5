"""Reading log files by offset: whole lines, exact cursors, bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.common.log_files import read_chunk


def read_all(path: Path, *, limit: int = 70_000, tail: int | None = None) -> list[str]:
    lines: list[str] = []
    cursor = ""
    while True:
        chunk = read_chunk(path, cursor=cursor, tail=tail, limit=limit, flush=True)
        lines += [line.text for line in chunk.lines]
        if chunk.lines:
            cursor, tail = chunk.lines[-1].cursor, None
        if not chunk.more:
            return lines


def test_an_unfinished_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"one\ntw")
    chunk = read_chunk(path, cursor="", tail=None, limit=1000, flush=False)
    assert [line.text for line in chunk.lines] == ["one"]
    with path.open("ab") as out:
        out.write(b"o\n")
    chunk = read_chunk(path, cursor=chunk.lines[-1].cursor, tail=None, limit=1000, flush=False)
    assert [line.text for line in chunk.lines] == ["two"]


def test_each_line_has_the_cursor_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"a\nbb\nccc\n")
    chunk = read_chunk(path, cursor="", tail=None, limit=1000, flush=False)
    assert [line.cursor for line in chunk.lines] == ["2", "5", "9"]
    rest = read_chunk(path, cursor="2", tail=None, limit=1000, flush=False)
    assert [line.text for line in rest.lines] == ["bb", "ccc"]


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("tail", [0, 1, 2, 3, 100_000])
def test_tail(tmp_path: Path, tail: int, ending: str) -> None:
    path = tmp_path / "job.log"
    lines = [f"line {number} {'x' * (number % 90)}" for number in range(5000)]
    path.write_text("\n".join(lines) + ending)
    assert read_all(path, tail=tail) == (lines[-tail:] if tail else [])


def test_a_very_long_line_comes_in_pieces_that_add_up(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    text = "é" * 300_000
    path.write_text(text + "\nend\n")
    pieces = read_all(path)
    assert "".join(pieces[:-1]) == text
    assert pieces[-1] == "end"
    assert "�" not in text


def test_memory_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    with path.open("w") as out:
        out.writelines(f"line {number} of a long log\n" for number in range(400_000))
    tracemalloc.start()
    cursor, count = "", 0
    while True:
        chunk = read_chunk(path, cursor=cursor, tail=None, limit=262_144, flush=True)
        count += len(chunk.lines)
        cursor = chunk.lines[-1].cursor if chunk.lines else cursor
        if not chunk.more:
            break
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 400_000
    assert peak < 8 * 2**20


def test_a_log_that_does_not_exist_yet(tmp_path: Path) -> None:
    missing = tmp_path / "job.log"
    chunk = read_chunk(missing, cursor="", tail=5, limit=10, flush=True)
    assert (chunk.lines, chunk.more) == ((), False)


def test_bad_cursors(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="cursor"):
        read_chunk(tmp_path / "x", cursor="abc", tail=None, limit=10, flush=True)
