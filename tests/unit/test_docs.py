"""The documentation is current: generated parts, links, names of tests and targets, seed lines."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `docs`

from docs import generate, seeds
from docs.seed_lines import DOCUMENTS, SEED_LINES, WORK

PAGES = list(generate.pages())
each_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


def test_generated_parts_are_current() -> None:
    stale = sorted(page.relative_to(ROOT).as_posix() for page in generate.stale_pages())
    assert stale == [], "run `make docs`"


def test_a_generated_part_is_rewritten_in_place() -> None:
    text = "before\n<!-- generated: credentials -->\nold\n<!-- end of generated part -->\nafter\n"
    once = generate.rewritten(text)
    assert "old" not in once
    assert "| `SECRET_KEY` | `AWS_SECRET_ACCESS_KEY` |" in once
    assert once.startswith("before\n")
    assert once.endswith("-->\nafter\n")
    assert generate.rewritten(once) == once


# -- what pages refer to


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.+)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+://", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert [name for name in sorted(names) if f"]({name})" not in index] == []


@each_page
def test_the_tests_that_are_named_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:tests|src)/[\w/]+\.py)((?:::\w+)*)`", page.read_text(encoding="utf-8")
    )
    missing = []
    for file, names in named:
        path = ROOT / file
        body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
        found = path.exists()
        for name in names.split("::")[1:]:
            nodes = {getattr(node, "name", ""): node for node in body}
            found = found and name in nodes
            body = getattr(nodes.get(name), "body", [])
        if not found:
            missing.append(file + names)
    assert missing == []


@each_page
def test_the_make_targets_that_are_named_exist(page: Path) -> None:
    targets = re.findall(
        r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)
    assert set(named) <= set(targets)


# -- seed lines


def test_the_set_of_seed_lines_is_the_checklists() -> None:
    numbers = [line.number for line in SEED_LINES]
    sizes = {"000": 25, "001": 11, "002": 17, "003": 10, "004": 14}
    assert numbers == [f"{name}.{n}" for name, size in sizes.items() for n in range(1, size + 1)]
    assert list(DOCUMENTS) == list(sizes)


def test_every_seed_line_is_proven_or_waits_for_known_work() -> None:
    proofs = seeds.find_proofs()
    assert seeds.unproven(proofs) == []
    assert set(proofs) <= {line.number for line in SEED_LINES}, "a test names a line there is not"
    assert {name for line in SEED_LINES for name in line.waits_for} <= set(WORK)
    titles = Counter(line.title for line in SEED_LINES)
    assert max(titles.values()) == 1


@pytest.mark.parametrize("number", [2, 3, 4, 9, 11, 17, 18, 20, 21, 25])
def test_what_must_hold_today_has_a_proof(number: int) -> None:
    assert seeds.find_proofs().get(f"000.{number}")


def test_how_a_test_names_its_lines() -> None:
    source = """
class TestOne:
    # seed 000.9, seed 000.18
    # and why
    def test_a(self): ...

    @pytest.mark.seed("000.2", "000.20")
    # seed 003.7 (variables)
    @pytest.mark.parametrize("x", [1])
    def test_b(self, x): ...

    def test_c(self): ...

@pytest.mark.seed("004.1")
def test_d(): ...
"""
    assert list(seeds.proofs_in(source, "x.py")) == [
        ("TestOne::test_a", ["000.9", "000.18"]),
        ("TestOne::test_b", ["000.2", "000.20", "003.7"]),
        ("test_d", ["004.1"]),
    ]


def test_a_comment_that_belongs_to_no_test_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"x\.py:1: this comment stands above no test"):
        list(seeds.proofs_in("# seed 000.9\n\n\ndef test_a(): ...\n", "x.py"))
