"""Each known defect of the reference's runner has a test that names it."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
LESSONS = [
    *(f"A{number}" for number in range(1, 21)),
    *(f"B{number}" for number in range(1, 12) if number != 7),  # B7 is about SLURM's script
    *(f"C{number}" for number in range(1, 6)),
    "E1",
]


@functools.cache
def named() -> dict[str, list[str]]:
    """Lessons, and the tests whose words name them."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for words in re.findall(r"Lessons? ([^:.]*)", ast.get_docstring(node) or ""):
                    for lesson in re.findall(r"\b[A-Z]\d+\b", words):
                        found.setdefault(lesson, []).append(f"{path.name}::{node.name}")
    return found


@pytest.mark.parametrize("lesson", LESSONS)
def test_it_is_named_by_a_test_of_the_whole_command(lesson: str) -> None:
    proofs = named().get(lesson, [])
    assert [proof for proof in proofs if proof.startswith("test_entrypoint_")], (lesson, proofs)
