"""Files that the documentation names exist, and what it says of their size is roughly right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tao_sdk.platforms import conformance

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


# -- ARCHITECTURE.md

PLATFORMS = ("local", "docker", "slurm", "kubernetes", "lepton", "brev")


def section(heading: str) -> str:
    """The text under a heading of ARCHITECTURE.md, up to the next heading."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return re.split(r"^#", text.partition(f" {heading}\n")[2], flags=re.MULTILINE)[0]


def exists(name: str) -> bool:
    """Whether a file exists; `<name>` stands for one of the platforms."""
    return any((SOURCE / name.replace("<name>", platform)).is_file() for platform in PLATFORMS)


@pytest.mark.parametrize("operation", ["create_job", "wait"])
def test_each_walk_is_at_most_ten_real_files(operation: str) -> None:
    cells = [row[0] for row in rows_of(section(f"The walk of `{operation}`"))[2:]]
    files = [name for cell in cells for name in files_in(cell)]
    assert 5 <= len(files) <= 10
    assert len(files) == len(cells), "one file a row"
    assert [name for name in files if not exists(name)] == []


def test_every_role_is_played_by_a_file_of_a_platform() -> None:
    files = [name for row in rows_of(section("Files of a platform")) for name in files_in(row[0])]
    assert len(files) > 10, "the table is not read"
    assert [name for name in files if not exists(f"platforms/<name>/{name}")] == []


def test_every_source_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    sources = [f"/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("*.*")]
    names = {name for name in files_in(text) if name.endswith((".py", ".sh")) and "<" not in name}
    paths = {name for name in names if not name.startswith(("src/", "tests/"))}
    assert len(paths) > 50
    gone = [name for name in paths if not any(path.endswith(f"/{name}") for path in sources)]
    assert sorted(gone) == []


# -- docs/examples

MOST_LINES = 250


def test_the_example_platform_stays_small() -> None:
    example = ROOT / "docs" / "examples" / "shell_platform.py"
    assert len(example.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


# -- docs/how-to/write-a-platform.md


def test_every_class_of_the_conformance_suite_is_explained() -> None:
    page = (ROOT / "docs" / "how-to" / "write-a-platform.md").read_text(encoding="utf-8")
    explained = {row[0].strip("`") for row in rows_of(page) if row[0].startswith("`Test")}
    assert explained == {name for name in conformance.__all__ if name.startswith("Test")}
