"""Files that the documentation names exist, and what it says of their size is roughly right."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tao_sdk"
DEPENDENCIES = ROOT / "docs" / "explanation" / "dependencies.md"


def rows_of(text: str) -> list[list[str]]:
    """The cells of every line of a table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def files_in(text: str) -> list[str]:
    """Source files and folders (`runner/http/`) that are named in code spans."""
    return re.findall(r"`([\w/<>]+(?:\.py|\.sh|/))`", text)


def lines_of(name: str) -> int:
    path = SOURCE / name
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


# -- docs/explanation/dependencies.md


def hand_written() -> list[tuple[list[str], str]]:
    """The files of each row about hand-written code, and the size it gives for them."""
    found = []
    for cells in rows_of(DEPENDENCIES.read_text(encoding="utf-8")):
        if files := files_in(cells[0]):
            found.append((files, cells[1]))
    return found


def test_every_hand_written_file_exists() -> None:
    text = DEPENDENCIES.read_text(encoding="utf-8")
    named = [name for name in files_in(text) if not name.startswith("tests/")]
    assert [name for name in named if not (SOURCE / name).exists()] == []
    assert len(hand_written()) > 20, "the tables are not read"


def test_no_file_is_the_subject_of_two_rows() -> None:
    subjects = [name for files, _ in hand_written() for name in files]
    assert sorted(subjects) == sorted(set(subjects))


def test_sizes_of_hand_written_code_are_roughly_right() -> None:
    wrong = []
    for files, size in hand_written():
        stated, real = int(size.replace(",", "")), sum(map(lines_of, files))
        if not real / 1.5 <= stated <= real * 1.5:
            wrong.append(f"{', '.join(files)}: {real} lines, the page says {stated}")
    assert wrong == []
