"""The documentation is current: generated parts, snippets, links, names of tests, seed lines."""

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
from docs.snippets import Snippet, snippets_of

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


# -- snippets: tests/e2e/test_docs_examples.py runs those that are to be run


@each_page
def test_every_snippet_is_run_or_says_why_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    snippets = snippets_of(text)
    fences = re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE)
    assert len(fences) == 2 * len(snippets), "a block was overlooked"
    loose = [f"line {s.line}: {s.language}" for s in snippets if not s.is_accounted_for]
    assert loose == []


@each_page
def test_every_output_belongs_to_the_program_above(page: Path) -> None:
    snippets = snippets_of(page.read_text(encoding="utf-8"))
    for before, snippet in zip([None, *snippets], snippets, strict=False):
        if snippet.is_compared:
            assert before is not None, snippet.line
            assert before.is_run, snippet.line
            assert before.language == "python", snippet.line


def test_every_page_of_examples_is_known_to_the_test_that_runs_them() -> None:
    """The pages are found by rule, so that a new one cannot be forgotten."""
    everything = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}
    assert set(PAGES) == everything
    assert ROOT / "README.md" in everything


def test_how_a_snippet_is_read() -> None:
    text = """
```python
1
```

<!-- not run: it is long -->

~~~sh
make all
~~~

<!-- generated: code a/b.py f -->

```python
def f(): ...
```

* a list
  ```console
  $ x
  ```
"""
    assert snippets_of(text) == [
        Snippet("python", "1\n", 3),
        Snippet("sh", "make all\n", 9, "it is long"),
        Snippet("python", "def f(): ...\n", 15, "a part of a/b.py"),
        Snippet("console", "  $ x\n", 20),
    ]
    assert [s.is_run for s in snippets_of(text)] == [True, False, False, True]
    assert not Snippet("bash", "rm -r x\n", 1).is_accounted_for
    assert not Snippet("", "rm -r x\n", 1).is_accounted_for


# -- what pages refer to


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page: of headings, as code hosts make them, and of docstrings."""
    text = without_code(page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    docstrings = re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(docstrings)


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


@pytest.mark.parametrize("part", ["how-to", "reference", "reference/api", "explanation"])
def test_every_page_of_a_part_is_in_its_index(part: str) -> None:
    """Readers on a code host have no navigation but this."""
    index = (ROOT / "docs" / part / "index.md").read_text(encoding="utf-8")
    names = {page.name for page in (ROOT / "docs" / part).glob("*.md")} - {"index.md"}
    assert [name for name in sorted(names) if f"]({name}" not in index] == []


def test_the_home_page_leads_to_the_four_parts() -> None:
    home = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for part in ("tutorial", "how-to/index", "reference/index", "explanation/index"):
        assert f"]({part}.md)" in home


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


def test_what_must_hold_today_has_a_proof() -> None:
    proofs = seeds.find_proofs()
    numbers = [1, 2, 3, 4, 6, 9, 11, 17, 18, 19, 20, 21, 22, 23, 25]
    assert [number for number in numbers if not proofs.get(f"000.{number}")] == []


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
